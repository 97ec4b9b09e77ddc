// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset.h"

#include <algorithm>

namespace blockswap::worker {
namespace {

// Note [Epoch order]
//
// The order is a function of (seed, epoch) alone, in arithmetic that is the same on every machine:
// standard library shuffles and distributions differ between implementations. Loader threads
// therefore cannot change it, and a resumed run continues it. A stream of numbers is splitmix64
// started from a mix of (seed, epoch, purpose); a number below n is the high half of the 128-bit
// product, whose bias of n / 2^64 does not matter here.
class OrderStream {
 public:
  OrderStream(int64_t seed, int64_t epoch, uint64_t purpose)
      : state_(
            Mix(Mix(Mix(static_cast<uint64_t>(seed)) ^ static_cast<uint64_t>(epoch)) ^ purpose)) {}

  uint64_t Below(uint64_t bound) {
    state_ += 0x9e3779b97f4a7c15;  // 2^64 / golden ratio, splitmix64's increment
    return static_cast<uint64_t>(static_cast<Wide>(Mix(state_)) * bound >> 64);
  }

  template <typename T>
  void Shuffle(std::vector<T>* values) {
    for (size_t i = values->size(); i > 1; --i) {
      std::swap((*values)[i - 1], (*values)[static_cast<size_t>(Below(i))]);
    }
  }

 private:
  __extension__ using Wide = unsigned __int128;

  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  uint64_t state_;
};

constexpr uint64_t kBatchOrderPurpose = ~uint64_t{0};  // no bucket has this index

int64_t NumBatches(const Bucket& bucket) {
  const auto items = static_cast<int64_t>(bucket.items.size());
  return (items + bucket.batch_size - 1) / bucket.batch_size;
}

}  // namespace

std::string Dataset::datasets_json() const { return datasets_json_; }

int64_t Dataset::batches_per_epoch() const {
  int64_t batches = 0;
  for (const Bucket& bucket : buckets_) batches += NumBatches(bucket);
  return batches;
}

std::vector<TokenCounts> Dataset::token_counts(const ModelDescription& model) const {
  std::vector<TokenCounts> counts;
  for (const Bucket& bucket : buckets_) {
    TokenCounts tokens;
    tokens.image = (bucket.latent_width / model.patch) * (bucket.latent_height / model.patch);
    for (const int64_t item : bucket.items) {
      tokens.text = std::max(tokens.text, items_[static_cast<size_t>(item)].text_tokens);
    }
    tokens.batch = std::min<int64_t>(bucket.batch_size, static_cast<int64_t>(bucket.items.size()));
    counts.push_back(tokens);
  }
  return counts;
}

// See Note [Epoch order].
std::vector<Batch> Dataset::EpochOrder(int64_t seed, int64_t epoch) const {
  std::vector<Batch> batches;
  batches.reserve(static_cast<size_t>(batches_per_epoch()));
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    std::vector<int64_t> items = bucket.items;
    OrderStream(seed, epoch, b).Shuffle(&items);
    for (size_t first = 0; first < items.size(); first += static_cast<size_t>(bucket.batch_size)) {
      const size_t last = std::min(items.size(), first + static_cast<size_t>(bucket.batch_size));
      batches.push_back({static_cast<int>(b),
                         {items.begin() + static_cast<std::ptrdiff_t>(first),
                          items.begin() + static_cast<std::ptrdiff_t>(last)}});
    }
  }
  OrderStream(seed, epoch, kBatchOrderPurpose).Shuffle(&batches);
  return batches;
}

Batch Dataset::BatchAt(int64_t seed, int64_t index) const {
  const int64_t per_epoch = batches_per_epoch();
  const int64_t epoch = index / per_epoch;
  const base::MutexLock lock(mutex_);
  if (cache_.epoch != epoch || cache_.seed != seed) {
    cache_ = {seed, epoch, EpochOrder(seed, epoch)};
  }
  return cache_.order[static_cast<size_t>(index % per_epoch)];
}

}  // namespace blockswap::worker
