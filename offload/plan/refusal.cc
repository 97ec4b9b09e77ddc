// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/refusal.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "offload/base/byte_size.h"
#include "offload/plan/planner.h"
#include "offload/plan/shortfall.h"

namespace blockswap::offload {
namespace {

// Bytes with the exact count, since "12.0 MiB needed, 12.0 MiB available" explains nothing.
std::string Exact(int64_t bytes) {
  return absl::StrCat(base::FormatByteSize(bytes), " (", bytes, " bytes)");
}

int64_t HostNeed(const Candidate& candidate, bool may_use_file) {
  const int64_t fixed = candidate.host_state_bytes + candidate.boundary_host_bytes;
  const int64_t masters = candidate.host_bytes + candidate.staging_bytes;
  return fixed + (may_use_file ? std::min(masters, candidate.read_buffer_bytes) : masters);
}

int64_t Tightest(const std::optional<int64_t>& asked, int64_t available, const char* asked_name,
                 const char* available_name, std::vector<std::string>& notes) {
  if (!asked.has_value()) return available;
  if (available <= 0 || *asked <= available) return *asked;
  notes.push_back(absl::StrCat(asked_name, " of ", base::FormatByteSize(*asked), " lowered to the ",
                               base::FormatByteSize(available), " ", available_name));
  return available;
}

// The fewest streamed blocks that fit when the user's count is set aside.
std::optional<Candidate> AnyThatFits(const PlanRequest& request, const Budgets& budgets,
                                     int ring_size, const ActivationChoice& activations) {
  const int maximum = MaxBlocksToSwap(request);
  for (int blocks_to_swap = 0; blocks_to_swap <= maximum; ++blocks_to_swap) {
    Candidate candidate = MakeCandidate(request, blocks_to_swap, ring_size, activations);
    if (Fits(candidate, budgets)) return candidate;
  }
  return std::nullopt;
}

std::string Breakdown(const PlanRequest& request, const Candidate& candidate) {
  const ModelProfile& model = request.model;
  return absl::StrCat("ring ", base::FormatByteSize(candidate.ring_bytes), ", resident blocks ",
                      base::FormatByteSize(candidate.resident_bytes), ", other weights ",
                      base::FormatByteSize(model.edge_bytes), ", adapter ",
                      base::FormatByteSize(model.adapter_bytes), ", optimizer ",
                      base::FormatByteSize(model.optimizer_bytes), ", activations ",
                      base::FormatByteSize(candidate.activation_bytes));
}

std::string Setting(const PlanRequest& request, const Candidate& candidate) {
  const std::string blocks = absl::StrCat("blocks_to_swap ", candidate.blocks_to_swap);
  if (Exchanges(request) || candidate.ring_size == 0) return blocks;
  return absl::StrCat(blocks, " and ring_size ", candidate.ring_size);
}

// One linear at a time needs least of all, where the model can do it.
std::optional<Candidate> LayersThatFit(const PlanRequest& request, const Budgets& budgets,
                                       const ActivationChoice& activations) {
  const std::vector<BlockProfile>& blocks = request.model.blocks;
  const bool has_layers = std::all_of(blocks.begin(), blocks.end(), [](const BlockProfile& block) {
    return !block.layers.empty();
  });
  if (!has_layers || StreamsLayers(request) || Exchanges(request) || request.base_trains) {
    return std::nullopt;
  }
  PlanRequest layered = request;
  layered.constraints.granularity = Granularity::kLayer;
  return AnyThatFits(layered, budgets, kDefaultRingSize, activations);
}

std::vector<std::string> DeviceOffers(const PlanRequest& request, const Budgets& budgets,
                                      const Candidate& smallest) {
  std::vector<std::string> offers;
  const int ring_size = request.constraints.ring_size.value_or(kDefaultRingSize);
  const ActivationChoice& choice = smallest.activations;
  std::optional<Candidate> other = AnyThatFits(request, budgets, ring_size, choice);
  if (!other.has_value()) other = AnyThatFits(request, budgets, /*ring_size=*/1, choice);
  if (other.has_value()) offers.push_back(Setting(request, *other));
  const std::optional<Candidate> layers = LayersThatFit(request, budgets, choice);
  if (layers.has_value()) {
    offers.push_back(
        absl::StrCat("granularity layer with blocks_to_swap ", layers->blocks_to_swap));
  }
  offers.push_back(absl::StrCat("vram_budget ", Exact(smallest.device_bytes), " with ",
                                Setting(request, smallest)));
  if (other.has_value()) return offers;
  // No number of blocks helps: what is left to lower is what each token and the adapter take.
  const ModelProfile& model = request.model;
  const int64_t over = smallest.device_bytes - budgets.device_bytes;
  const int64_t activations = smallest.activation_bytes;
  const int64_t trained = model.adapter_bytes + model.optimizer_bytes;
  if (activations > over) {
    offers.push_back(absl::StrCat("a batch or resolution with ", Exact(activations - over),
                                  " of activations instead of ",
                                  base::FormatByteSize(activations)));
  }
  if (trained > over) {
    offers.push_back(absl::StrCat("an adapter that takes ", Exact(trained - over), " instead of ",
                                  base::FormatByteSize(trained), " with its optimizer state"));
  }
  return offers;
}

// Only whole blocks are read from the checkpoint file at each use.
bool WholeBlocksFit(const PlanRequest& request) {
  if (!StreamsLayers(request)) return false;
  PlanRequest whole = request;
  whole.constraints.granularity = Granularity::kBlock;
  return Plan(whole).ok();
}

absl::Status HostDoesNotFit(const PlanRequest& request, const Budgets& budgets,
                            const ActivationChoice& activations) {
  Budgets device_only = budgets;
  device_only.host_bytes = 0;
  const bool fixed = request.constraints.blocks_to_swap.has_value();
  const bool from_file = budgets.may_use_file;
  std::optional<Candidate> least;
  for (const int ring_size : {request.constraints.ring_size.value_or(kDefaultRingSize), 1}) {
    std::optional<Candidate> next =
        fixed ? SmallestCandidate(request, ring_size, /*free_choice=*/false, activations)
              : AnyThatFits(request, device_only, ring_size, activations);
    // A smaller ring leaves room for residents, which need no master.
    if (next.has_value() &&
        (!least.has_value() || HostNeed(*next, from_file) < HostNeed(*least, from_file)))
      least = next;
  }
  const int64_t needed = HostNeed(*least, from_file);
  std::vector<std::string> offers = {absl::StrCat("host_budget ", Exact(needed))};
  if (WholeBlocksFit(request)) {
    offers.push_back("granularity block, which reads from the file what has no room in memory");
  }
  Budgets host_only = budgets;
  host_only.device_bytes = 0;
  // More VRAM means fewer blocks away: the largest number whose masters still fit the host.
  for (int n = least->blocks_to_swap - 1; n >= 0; --n) {
    const Candidate fewer = MakeCandidate(
        request, n, request.constraints.ring_size.value_or(kDefaultRingSize), activations);
    if (!Fits(fewer, host_only)) continue;
    offers.push_back(
        absl::StrCat("vram_budget ", Exact(fewer.device_bytes), " with ", Setting(request, fewer)));
    break;
  }
  const std::string would_fit = absl::StrJoin(offers, ", or ");
  return WithShortfall(
      absl::FailedPreconditionError(
          absl::StrCat("host memory too small: needed ", Exact(needed), " for the masters of ",
                       least->streamed.size(), " streamed blocks",
                       StreamsLayers(request) && request.may_stream_from_file
                           ? ", none of which granularity layer can leave in the checkpoint file"
                           : "",
                       ", available ", Exact(budgets.host_bytes), "; would fit: ", would_fit)),
      {"host_memory", needed, budgets.host_bytes, would_fit});
}

}  // namespace

Budgets EffectiveBudgets(const PlanRequest& request) {
  Budgets budgets;
  const MemoryConstraints& constraints = request.constraints;
  budgets.device_bytes = Tightest(constraints.vram_budget_bytes, request.device_free_bytes,
                                  "vram_budget", "free on the device", budgets.notes);
  budgets.host_bytes = Tightest(constraints.host_budget_bytes, request.host_available_bytes,
                                "host_budget", "available on the host", budgets.notes);
  budgets.may_use_file = request.may_stream_from_file && !Exchanges(request) &&
                         !request.base_trains && !StreamsLayers(request) &&
                         request.constraints.pin_policy != PinPolicy::kRequired;
  return budgets;
}

Candidate SmallestCandidate(const PlanRequest& request, int ring_size, bool free_choice,
                            const ActivationChoice& activations) {
  const MemoryConstraints& constraints = request.constraints;
  const bool fixed = constraints.blocks_to_swap.has_value() && !free_choice;
  const int first = fixed ? *constraints.blocks_to_swap : 0;
  const int last = fixed ? *constraints.blocks_to_swap : MaxBlocksToSwap(request);
  Candidate best = MakeCandidate(request, first, ring_size, activations);
  for (int blocks_to_swap = first + 1; blocks_to_swap <= last; ++blocks_to_swap) {
    Candidate next = MakeCandidate(request, blocks_to_swap, ring_size, activations);
    // Among equals the one that streams fewest blocks.
    if (next.device_bytes < best.device_bytes) best = std::move(next);
  }
  return best;
}

bool Fits(const Candidate& candidate, const Budgets& budgets) {
  if (budgets.device_bytes > 0 && candidate.device_bytes > budgets.device_bytes) return false;
  return budgets.host_bytes == 0 || HostNeed(candidate, budgets.may_use_file) <= budgets.host_bytes;
}

absl::Status DoesNotFit(const PlanRequest& request, const Budgets& budgets,
                        const ActivationChoice& activations) {
  const Candidate smallest =
      SmallestCandidate(request, /*ring_size=*/1, /*free_choice=*/false, activations);
  if (budgets.device_bytes == 0 || smallest.device_bytes <= budgets.device_bytes) {
    return HostDoesNotFit(request, budgets, activations);
  }
  const std::string would_fit = absl::StrJoin(DeviceOffers(request, budgets, smallest), ", or ");
  return WithShortfall(
      absl::FailedPreconditionError(
          absl::StrCat("vram_budget too small: needed ", Exact(smallest.device_bytes), " for ",
                       Setting(request, smallest), " (", Breakdown(request, smallest),
                       "), available ", Exact(budgets.device_bytes), "; would fit: ", would_fit)),
      {"device_memory", smallest.device_bytes, budgets.device_bytes, would_fit});
}

}  // namespace blockswap::offload
