// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>

#include "worker/commands/bench_step.h"
#include "worker/commands/command.h"
#include "worker/commands/inspect.h"
#include "worker/commands/link_test.h"
#include "worker/commands/probe.h"
#include "worker/commands/run.h"
#include "worker/commands/train.h"
#include "worker/train/compute_threads.h"

namespace {

int RunVersion(int /*argc*/, char** /*argv*/) {
  std::printf("blockswap-worker %s, LibTorch %s, CUDA %s, string ABI %d\n", BLOCKSWAP_VERSION,
              BLOCKSWAP_TORCH_VERSION, BLOCKSWAP_CUDA_VERSION, _GLIBCXX_USE_CXX11_ABI);
  return 0;
}

struct Command {
  const char* name;
  int (*run)(int argc, char** argv);
  const char* summary;
};

constexpr Command kCommands[] = {
    {"train", blockswap::worker::RunTrain, "train one job, without a server"},
    {"run", blockswap::worker::RunAttempt,
     "run one attempt of a job for the server that started this process"},
    {"probe", blockswap::worker::RunProbe,
     "run one forward (and backward) of a checkpoint on given inputs"},
    {"inspect", blockswap::worker::RunInspect, "say what a checkpoint holds"},
    {"link-test", blockswap::worker::RunLinkTest, "measure the bus between host and device"},
    {"bench-step", blockswap::worker::RunBenchStep, "time training steps on random inputs"},
    {"version", RunVersion, "print the version"},
};

void PrintUsage(std::FILE* out) {
  std::fprintf(out, "usage: blockswap-worker COMMAND [OPTION]...\n\ncommands (each has --help):\n");
  for (const Command& command : kCommands)
    std::fprintf(out, "  %-11s %s\n", command.name, command.summary);
}

}  // namespace

int main(int argc, char** argv) {
  blockswap::worker::EnsurePassiveWaiting(argv);
  if (argc < 2) {
    PrintUsage(stderr);
    return blockswap::worker::kUsageExit;
  }
  if (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0 ||
      std::strcmp(argv[1], "help") == 0) {
    PrintUsage(stdout);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (std::strcmp(argv[1], command.name) == 0) return command.run(argc - 1, argv + 1);
  }
  std::fprintf(stderr, "blockswap-worker: unknown command '%s'\n", argv[1]);
  PrintUsage(stderr);
  return blockswap::worker::kUsageExit;
}
