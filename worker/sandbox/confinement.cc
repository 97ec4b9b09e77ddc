// SPDX-License-Identifier: Apache-2.0
#include "worker/sandbox/confinement.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

// A training process has a few dozen descriptors open; each shard of a checkpoint is one more.
constexpr rlim_t kMaxDescriptors = 65536;
// Counts all threads of the user: far above what a machine runs, far below what a fork bomb makes.
constexpr rlim_t kMaxProcesses = 32768;

// Of newer kernels than the distribution's header knows.
constexpr uint64_t kTruncate = uint64_t{1} << 14;             // version 3
constexpr uint64_t kBindTcp = uint64_t{1} << 0;               // version 4
constexpr uint64_t kConnectTcp = uint64_t{1} << 1;            // version 4
constexpr uint64_t kScopeAbstractSockets = uint64_t{1} << 0;  // version 6
constexpr uint64_t kScopeSignals = uint64_t{1} << 1;          // version 6
constexpr int kAbiRefer = 2, kAbiTruncate = 3, kAbiNet = 4, kAbiScope = 6;

struct RulesetAttributes {
  uint64_t handled_access_fs = 0, handled_access_net = 0, scoped = 0;
};

constexpr uint64_t kRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kExecute = LANDLOCK_ACCESS_FS_EXECUTE;
constexpr uint64_t kMake = LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                           LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                           LANDLOCK_ACCESS_FS_MAKE_SYM;
// Nothing of ours makes these: handled, and allowed nowhere.
constexpr uint64_t kMakeSpecial = LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                                  LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SOCK;

absl::Status Refused(const char* what) {
  return absl::InternalError(absl::StrCat("cannot confine the worker: ", what, ": ",
                                          std::strerror(errno),
                                          "; confine_workers = \"off\" runs it without"));
}

// Rights for devices leave ioctl (version 5) unhandled: CUDA is nothing but ioctl.
class Ruleset final {
 public:
  static absl::StatusOr<Ruleset> Create(int abi) {
    Ruleset rules;
    rules.write_ = LANDLOCK_ACCESS_FS_WRITE_FILE;
    if (abi >= kAbiTruncate) rules.write_ |= kTruncate;
    rules.make_ = kMake;
    if (abi >= kAbiRefer) rules.make_ |= LANDLOCK_ACCESS_FS_REFER;
    RulesetAttributes attributes;
    attributes.handled_access_fs = kRead | kExecute | rules.write_ | rules.make_ | kMakeSpecial;
    size_t size = sizeof(attributes.handled_access_fs);
    if (abi >= kAbiNet) {
      attributes.handled_access_net = kBindTcp | kConnectTcp;
      size = offsetof(RulesetAttributes, scoped);
    }
    if (abi >= kAbiScope) {
      attributes.scoped = kScopeAbstractSockets | kScopeSignals;
      size = sizeof(attributes);
    }
    rules.fd_ =
        OwnedFd(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, size, 0)));
    if (rules.fd_.get() < 0) return Refused("landlock_create_ruleset");
    return rules;
  }

  absl::Status Allow(const std::vector<std::string>& paths, uint64_t rights) const {
    for (const std::string& path : paths) BLOCKSWAP_RETURN_IF_ERROR(AllowPath(path, rights));
    return absl::OkStatus();
  }
  absl::Status Enforce() const {
    return syscall(SYS_landlock_restrict_self, fd_.get(), 0) == 0
               ? absl::OkStatus()
               : Refused("landlock_restrict_self");
  }
  uint64_t write() const { return write_; }
  uint64_t make() const { return make_; }

 private:
  absl::Status AllowPath(const std::string& path, uint64_t rights) const {
    const OwnedFd target(open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat facts {};
    if (target.get() < 0 || fstat(target.get(), &facts) != 0) return absl::OkStatus();
    // The kernel refuses rights of directories on a file.
    if (!S_ISDIR(facts.st_mode)) rights &= ~(make_ | LANDLOCK_ACCESS_FS_READ_DIR);
    landlock_path_beneath_attr rule = {};
    rule.allowed_access = rights;
    rule.parent_fd = target.get();
    if (syscall(SYS_landlock_add_rule, fd_.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
      return Refused(path.c_str());
    }
    return absl::OkStatus();
  }

  OwnedFd fd_;
  uint64_t write_ = 0, make_ = 0;
};

void Lower(int resource, rlim_t limit) {
  rlimit now{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &now) != 0) return;
  const rlimit lower{std::min(now.rlim_cur, limit), std::min(now.rlim_max, limit)};
  // Lowering never needs a privilege; where it fails all the same, the old limit stands.
  setrlimit(static_cast<__rlimit_resource_t>(resource), &lower);
}

int64_t NumThreads() {
  int64_t count = 0;
  std::error_code ignored;
  for (fs::directory_iterator it("/proc/self/task", ignored), end; it != end; it.increment(ignored))
    ++count;
  return count;
}

// Folders of the files that are mapped now. Of a Python wheel the whole site-packages: torch loads
// its CUDA libraries, which lie beside it, only when a device is used.
std::set<std::string> FoldersOfLibraries() {
  std::set<std::string> folders;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos) continue;
    std::string folder = fs::path(line.substr(path)).parent_path().string();
    constexpr absl::string_view kPackages = "/site-packages/";
    const size_t packages = folder.find(kPackages.data());
    if (packages != std::string::npos) folder.resize(packages + kPackages.size() - 1);
    folders.insert(folder);
  }
  return folders;
}

absl::StatusOr<Confinement> Restrict(int abi, const AllowedPaths& paths) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const Ruleset rules, Ruleset::Create(abi));
  BLOCKSWAP_RETURN_IF_ERROR(rules.Allow(paths.data, kRead));
  BLOCKSWAP_RETURN_IF_ERROR(rules.Allow(paths.programs, kRead | kExecute));
  BLOCKSWAP_RETURN_IF_ERROR(rules.Allow(paths.devices, kRead | rules.write()));
  BLOCKSWAP_RETURN_IF_ERROR(rules.Allow(paths.output, kRead | rules.write() | rules.make()));
  BLOCKSWAP_RETURN_IF_ERROR(rules.Enforce());
  Confinement done;
  done.landlock_abi = abi;
  done.no_tcp = abi >= kAbiNet;
  done.no_signals = abi >= kAbiScope;
  return done;
}

}  // namespace

absl::StatusOr<ConfinementMode> ParseConfinementMode(absl::string_view name) {
  if (name == "auto") return ConfinementMode::kAuto;
  if (name == "required") return ConfinementMode::kRequired;
  if (name == "off") return ConfinementMode::kOff;
  return absl::InvalidArgumentError(
      absl::StrCat("confinement: \"", name, "\" is none of auto, required, off"));
}

AllowedPaths SystemPaths() {
  AllowedPaths paths;
  paths.data = {"/etc", "/proc", "/sys"};
  paths.programs = {"/usr", "/lib", "/lib64", "/bin", "/opt", "/nix", "/gnu"};
  for (const std::string& folder : FoldersOfLibraries()) {
    // A file that is mapped from a root would open the whole machine.
    if (folder.size() > 1) paths.programs.push_back(folder);
  }
  // The names of threads are written below /proc/self; CUDA has its devices and their shared
  // memory.
  paths.devices = {"/dev", "/proc/self"};
  paths.output = {"/dev/shm"};
  const char* cache = std::getenv("CUDA_CACHE_PATH");
  const char* home = std::getenv("HOME");
  if (cache != nullptr) {
    paths.output.push_back(cache);
  } else if (home != nullptr && home[0] == '/') {
    paths.output.push_back(absl::StrCat(home, "/.nv"));
  }
  // Of the multi-process service, where one runs.
  const char* pipes = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  paths.devices.push_back(pipes == nullptr ? "/tmp/nvidia-mps" : pipes);
  return paths;
}

std::string Confinement::ToText() const {
  if (landlock_abi == 0) {
    return "confinement: no new privileges, no core dumps; files are not confined: this kernel has "
           "no Landlock";
  }
  return absl::StrCat("confinement: Landlock version ", landlock_abi,
                      ", no new privileges, no core dumps", no_tcp ? ", no TCP" : "",
                      no_signals ? ", no signals to others" : "");
}

int LandlockAbi() {
  const int64_t version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version > 0 ? static_cast<int>(version) : 0;
}

absl::StatusOr<Confinement> ConfineThisProcess(ConfinementMode mode, const AllowedPaths& paths) {
  Lower(RLIMIT_CORE, 0);  // a dump would hold the weights, and the token
  if (mode == ConfinementMode::kOff) return Confinement{};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Refused("no new privileges");
  Lower(RLIMIT_NOFILE, kMaxDescriptors);
  Lower(RLIMIT_NPROC, kMaxProcesses);
  const int abi = LandlockAbi();
  if (abi == 0) {
    if (mode == ConfinementMode::kAuto) return Confinement{};
    return absl::FailedPreconditionError(
        "confine_workers is \"required\", but this kernel has no Landlock (Linux 5.13 with "
        "CONFIG_SECURITY_LANDLOCK, named in the boot parameter lsm=)");
  }
  if (NumThreads() > 1) {
    return absl::FailedPreconditionError("the worker must be confined before it starts threads");
  }
  return Restrict(abi, paths);
}

}  // namespace blockswap::worker
