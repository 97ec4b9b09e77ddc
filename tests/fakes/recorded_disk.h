// SPDX-License-Identifier: Apache-2.0
// Records what this process writes to some files and when it syncs them, and makes of that what a
// power cut at any moment may leave.
//
// The program's own pwrite64, ftruncate64, fsync and fdatasync stand in front of the C library's. A
// disk may have written any part of what was not synced, in sectors, and keeps all that was.
#ifndef BLOCKSWAP_TESTS_FAKES_RECORDED_DISK_H_
#define BLOCKSWAP_TESTS_FAKES_RECORDED_DISK_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace blockswap {

// Thread safety: safe while recording; CutAt is for afterwards. At most one at a time.
class RecordedDisk final {
 public:
  // Of the files whose paths are `path` or `path`-wal; what they hold now counts as synced.
  explicit RecordedDisk(const std::string& path);
  ~RecordedDisk();
  RecordedDisk(const RecordedDisk&) = delete;
  RecordedDisk& operator=(const RecordedDisk&) = delete;

  // Operations so far.
  size_t moment() const;
  size_t num_syncs() const;
  // To the file itself: what was folded in from its log.
  size_t num_direct_writes() const;
  // Writes what is left of the files when the power goes after `moment` operations to `directory`,
  // under their names. Of what was not synced by then `random` keeps nothing, everything, or some.
  void CutAt(size_t moment, std::mt19937_64& random, const std::string& directory) const;

  enum class Kind { kWrite, kTruncate, kSync };
  struct Operation {
    Kind kind = Kind::kWrite;
    std::string file;
    int64_t offset = 0;  // of kTruncate the new size
    std::string bytes;
  };

 private:
  size_t Count(Kind kind, const std::string& file) const;

  const std::string path_;
  const std::map<std::string, std::string> before_;  // by name
  std::vector<Operation> operations_;
};

}  // namespace blockswap

#endif  // BLOCKSWAP_TESTS_FAKES_RECORDED_DISK_H_
