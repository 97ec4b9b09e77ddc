// SPDX-License-Identifier: Apache-2.0
// The table of all settings, in the order of the help.
#ifndef BLOCKSWAP_SERVER_CONFIG_SERVER_SETTINGS_H_
#define BLOCKSWAP_SERVER_CONFIG_SERVER_SETTINGS_H_

#include <vector>

#include "server/config/setting.h"

namespace blockswap::server {

std::vector<Setting> ServerSettings();

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_CONFIG_SERVER_SETTINGS_H_
