// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/output_blocking.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>

namespace blockswap::worker {

void SetOutputBlocking(bool blocks) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat facts {};
    if (fstat(fd, &facts) != 0 || !S_ISFIFO(facts.st_mode)) continue;
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0) continue;
    fcntl(fd, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
  }
}

}  // namespace blockswap::worker
