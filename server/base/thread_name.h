// SPDX-License-Identifier: Apache-2.0
// Names the calling thread for debuggers and `top -H`.
#ifndef BLOCKSWAP_SERVER_BASE_THREAD_NAME_H_
#define BLOCKSWAP_SERVER_BASE_THREAD_NAME_H_

#include <pthread.h>

namespace blockswap::server {

// At most 15 characters; longer names are refused by the kernel and ignored here.
inline void NameThisThread(const char* name) { pthread_setname_np(pthread_self(), name); }

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BASE_THREAD_NAME_H_
