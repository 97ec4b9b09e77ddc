// SPDX-License-Identifier: Apache-2.0
// Copies a YAML tree into a protobuf message, led by the message's descriptor, and collects every
// fault on the way.
#ifndef BLOCKSWAP_PROTO_JOB_FILE_MESSAGE_FILLER_H_
#define BLOCKSWAP_PROTO_JOB_FILE_MESSAGE_FILLER_H_

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "proto/job_file/job_file.h"
#include "proto/job_file/yaml_tree.h"

namespace blockswap::proto {

class MessageFiller final {
 public:
  // `root` is where keys that are known at another level are looked for; both pointers outlive the
  // filler.
  MessageFiller(const google::protobuf::Descriptor* root, std::vector<JobFileFault>* faults)
      : root_(root), faults_(faults) {}

  // Fields that are absent or null keep their value.
  void FillMessage(const YamlNode& node, const std::string& path,
                   google::protobuf::Message* message);
  // Replaces lists, adds to maps and messages.
  void FillField(const YamlNode& node, const std::string& path,
                 const google::protobuf::FieldDescriptor* field,
                 google::protobuf::Message* message);

  // 'unknown key, did you mean "ring_size"?' for a key of `descriptor`.
  std::string DescribeUnknownKey(const std::string& key,
                                 const google::protobuf::Descriptor* descriptor) const;

 private:
  void FillScalar(const YamlNode& node, const std::string& path,
                  const google::protobuf::FieldDescriptor* field,
                  google::protobuf::Message* message);
  void FillList(const YamlNode& node, const std::string& path,
                const google::protobuf::FieldDescriptor* field, google::protobuf::Message* message);
  void FillMap(const YamlNode& node, const std::string& path,
               const google::protobuf::FieldDescriptor* field, google::protobuf::Message* message);
  void AddFault(const std::string& path, const std::string& description, int line);

  const google::protobuf::Descriptor* const root_;
  std::vector<JobFileFault>* const faults_;
};

}  // namespace blockswap::proto

#endif  // BLOCKSWAP_PROTO_JOB_FILE_MESSAGE_FILLER_H_
