// SPDX-License-Identifier: Apache-2.0
// What operators do: drain devices, pause the queue, look after the server.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/cli/call.h"
#include "client/cli/commands.h"
#include "client/cli/listing.h"
#include "client/cli/people_text.h"
#include "offload/base/byte_size.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {
namespace {

std::string DeviceName(const std::string& word) {
  return absl::StartsWith(word, "devices/") ? word : absl::StrCat("devices/", word);
}

std::string DeviceText(const v1::Device& device) {
  const absl::string_view health =
      absl::StripPrefix(v1::Device::Health_Name(device.health()), "HEALTH_");
  return absl::StrCat(proto::ToPrintable(absl::StripPrefix(device.name(), "devices/")), " ", health,
                      "\n");
}

template <typename Call>
ExitCode CallAndShowDevice(Session& session, const Call& call) {
  return CallServer(session, call, [&session](const v1::Device& device) {
    return session.Show(device, DeviceText(device));
  });
}

std::string QueueName(const v1::Queue& queue) {
  return std::string(absl::StripPrefix(queue.name(), "queues/"));
}

ExitCode ShowQueue(const Session& session, const Arguments& arguments, const v1::Queue& queue) {
  const absl::Time now = absl::Now();
  return PrintOne<v1::Queue>(
      session, arguments, queue, QueueName,
      {{"QUEUE", QueueName},
       {"STATE",
        [](const v1::Queue& each) { return std::string(each.paused() ? "PAUSED" : "OPEN"); }},
       {"QUEUED", [](const v1::Queue& each) { return absl::StrCat(each.queued_jobs()); }},
       {"HELD", [](const v1::Queue& each) { return absl::StrCat(each.held_jobs()); }},
       {"RUNNING", [](const v1::Queue& each) { return absl::StrCat(each.running_jobs()); }},
       {"SINCE", [now](const v1::Queue& each) { return Ago(each.pause_time(), now); }},
       {"REASON", [](const v1::Queue& each) { return each.pause_reason(); }}});
}

template <typename Call>
ExitCode CallAndShowQueue(Session& session, const Arguments& arguments, const Call& call) {
  return CallServer(session, call,
                    [&](const v1::Queue& queue) { return ShowQueue(session, arguments, queue); });
}

}  // namespace

ExitCode RunDevicesDrain(Session& session, const Arguments& arguments) {
  return CallAndShowDevice(session, [&arguments](client::ServerClient& client) {
    v1::DrainDeviceRequest request;
    request.set_name(DeviceName(arguments.device));
    request.set_reason(arguments.reason);
    return client.DrainDevice(request);
  });
}

ExitCode RunDevicesUndrain(Session& session, const Arguments& arguments) {
  return CallAndShowDevice(session, [&arguments](client::ServerClient& client) {
    v1::UndrainDeviceRequest request;
    request.set_name(DeviceName(arguments.device));
    return client.UndrainDevice(request);
  });
}

ExitCode RunQueueShow(Session& session, const Arguments& arguments) {
  return CallAndShowQueue(session, arguments, [](client::ServerClient& client) {
    return client.GetQueue(v1::GetQueueRequest());
  });
}

ExitCode RunQueuePause(Session& session, const Arguments& arguments) {
  return CallAndShowQueue(session, arguments, [&arguments](client::ServerClient& client) {
    v1::PauseQueueRequest request;
    request.set_reason(arguments.reason);
    return client.PauseQueue(request);
  });
}

ExitCode RunQueueResume(Session& session, const Arguments& arguments) {
  return CallAndShowQueue(session, arguments, [](client::ServerClient& client) {
    return client.ResumeQueue(v1::ResumeQueueRequest());
  });
}

ExitCode RunServerHealth(Session& session, const Arguments&) {
  return CallServer(
      session, &client::ServerClient::GetServerInfo, [&session](const v1::ServerInfo& info) {
        session.Show(info, info.accepting_jobs() ? "accepts jobs\n" : "does not accept jobs\n");
        return info.accepting_jobs() ? kOk : kUnavailable;
      });
}

ExitCode RunServerCheck(Session& session, const Arguments&) {
  return CallServer(
      session, &client::ServerClient::CheckStore, [&session](const v1::CheckStoreResponse& check) {
        std::string text = absl::StrCat(
            check.ok() ? "the database is sound: " : "the database is damaged: ",
            base::FormatByteSize(check.bytes()), ", schema ", check.schema_version(), "\n");
        for (const std::string& problem : check.problems())
          absl::StrAppend(&text, "  ", proto::ToPrintable(problem), "\n");
        session.Show(check, text);
        return check.ok() ? kOk : kError;
      });
}

ExitCode RunServerBackup(Session& session, const Arguments&) {
  return CallServer(session, &client::ServerClient::BackUpStore,
                    [&session](const v1::BackUpStoreResponse& backup) {
                      return session.Show(backup,
                                          absl::StrCat(proto::ToPrintable(backup.file()), "\n"));
                    });
}

ExitCode RunServerConfig(Session& session, const Arguments& arguments) {
  using Setting = v1::ConfigSetting;
  const std::vector<Column<Setting>> columns = {
      {"SETTING", [](const Setting& setting) { return setting.key(); }},
      {"VALUE", [](const Setting& setting) { return setting.value(); }},
      {"FROM",
       [](const Setting& setting) {
         return std::string(absl::StripPrefix(Setting::Origin_Name(setting.origin()), "ORIGIN_"));
       }},
      {"RELOAD",
       [](const Setting& setting) { return std::string(setting.reloadable() ? "yes" : "no"); },
       true},
      {"HELP", [](const Setting& setting) { return setting.help(); }, true}};
  return CallServer(session, &client::ServerClient::GetConfig,
                    [&](const v1::GetConfigResponse& config) {
                      return PrintListing<Setting>(
                          session, arguments, config, config.settings(),
                          [](const Setting& setting) { return setting.key(); }, columns);
                    });
}

ExitCode RunServerReload(Session& session, const Arguments&) {
  return CallServer(
      session, &client::ServerClient::ReloadConfig,
      [&session](const v1::ReloadConfigResponse& reload) {
        const std::string changed = absl::StrJoin(reload.changed(), ", ");
        session.Show(reload,
                     absl::StrCat("changed: ",
                                  changed.empty() ? "nothing" : proto::ToPrintable(changed), "\n"));
        if (!session.structured() && !reload.restart_needed().empty()) {
          session.err() << "after a restart: "
                        << proto::ToPrintable(absl::StrJoin(reload.restart_needed(), ", ")) << "\n";
        }
        return kOk;
      });
}

}  // namespace blockswap::cli
