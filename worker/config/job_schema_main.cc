// SPDX-License-Identifier: Apache-2.0
// Prints the JSON Schema of the job file: job_schema DESCRIPTOR_SET.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "worker/config/job_schema.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: job_schema DESCRIPTOR_SET > job.schema.json\n");
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string descriptors((std::istreambuf_iterator<char>(file)), {});
  const auto schema = blockswap::worker::JobSchema(descriptors);
  if (!schema.ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[1], std::string(schema.status().message()).c_str());
    return EXIT_FAILURE;
  }
  std::fputs(schema->c_str(), stdout);
  return EXIT_SUCCESS;
}
