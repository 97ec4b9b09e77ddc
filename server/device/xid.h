// SPDX-License-Identifier: Apache-2.0
// What an Xid, the driver's number of an error, means for the device and for the job on it.
#ifndef BLOCKSWAP_SERVER_DEVICE_XID_H_
#define BLOCKSWAP_SERVER_DEVICE_XID_H_

#include <cstdint>
#include <string>

namespace blockswap::server {

enum class XidEffect {
  kApplication,  // a fault of the program: it is counted, the device is as good as before
  kDevice,       // the device is out of service until somebody has looked at it
  kNotice,       // told for information
};

XidEffect EffectOfXid(int64_t xid);
// "Xid 79: the GPU has fallen off the bus".
std::string XidText(int64_t xid);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_XID_H_
