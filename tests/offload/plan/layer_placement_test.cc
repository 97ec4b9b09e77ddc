// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/layer_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

namespace blockswap::offload {
namespace {

// One cycle executed by hand: every visit has to find its unit whole.
struct HandRun {
  int absent = 0;
  int outside = 0;  // loads beyond the window
  int waiting = 0;  // loads that start only when the visit before theirs is over
  std::vector<LayerPlace> last;
};

HandRun RunByHand(const LayerSchedule& schedule, const std::vector<int64_t>& bytes,
                  int64_t window_bytes) {
  HandRun run{.last = schedule.initial};
  const auto size = [&](int unit) { return bytes[static_cast<size_t>(unit)]; };
  const int num_visits = static_cast<int>(schedule.visits.size());
  size_t next = 0;
  for (int visit = 0; visit < num_visits; ++visit) {
    const int unit = schedule.visits[static_cast<size_t>(visit)];
    run.absent += std::none_of(run.last.begin(), run.last.end(),
                               [&](const LayerPlace& place) { return place.unit == unit; });
    for (; next < schedule.loads.size() && schedule.loads[next].after_visit == visit; ++next) {
      const LayerLoad& load = schedule.loads[next];
      run.outside += load.offset < 0 || load.offset + size(load.unit) > window_bytes;
      run.waiting += schedule.visits[static_cast<size_t>((visit + 1) % num_visits)] == load.unit;
      run.last.erase(std::remove_if(run.last.begin(), run.last.end(),
                                    [&](const LayerPlace& place) {
                                      return place.unit == load.unit ||
                                             (place.offset < load.offset + size(load.unit) &&
                                              load.offset < place.offset + size(place.unit));
                                    }),
                     run.last.end());
      run.last.push_back({load.unit, load.offset});
    }
  }
  return run;
}

std::vector<LayerPlace> Sorted(std::vector<LayerPlace> places) {
  std::sort(places.begin(), places.end(),
            [](const LayerPlace& a, const LayerPlace& b) { return a.unit < b.unit; });
  return places;
}

TEST(LayerPlacementTest, EveryVisitFindsItsLayerAndACycleEndsWhereItBegan) {
  std::mt19937_64 random(3);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < 600; ++round) {
    std::vector<int64_t> bytes;
    for (int unit = pick(1, 12); unit > 0; --unit) bytes.push_back(256 * pick(1, 20));
    std::vector<int64_t> sorted = bytes;
    std::sort(sorted.rbegin(), sorted.rend());
    const int64_t window = sorted[0] + (sorted.size() > 1 ? sorted[1] : 0);
    std::vector<int> visits;
    for (int visit = pick(1, 40); visit > 0; --visit) {
      visits.push_back(pick(0, static_cast<int>(bytes.size()) - 1));
    }
    for (const LayerPlacement placement :
         {LayerPlacement::kEnds, LayerPlacement::kOldest, LayerPlacement::kFarthest}) {
      SCOPED_TRACE(absl::StrCat("round ", round, ", placement ", static_cast<int>(placement)));
      const LayerSchedule schedule = PlaceLayers(visits, bytes, window, placement);
      const HandRun run = RunByHand(schedule, bytes, window);
      ASSERT_EQ(run.absent, 0);
      ASSERT_EQ(run.outside, 0);
      ASSERT_EQ(Sorted(run.last), Sorted(schedule.initial));
    }
  }
}

// The window holds two linears of any size, so a load never has to wait for the visit just before:
// only a cycle that cannot end where it began pays for that, once.
TEST(LayerPlacementTest, AtTheEndsALoadNeverWaitsForTheVisitBefore) {
  const std::vector<int64_t> bytes = {2560, 256, 1280, 2304, 512, 1024};
  std::vector<int> visits;
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (int unit = 0; unit < 6; ++unit) visits.push_back(unit);
  }
  const LayerSchedule schedule = PlaceLayers(visits, bytes, 2560 + 2304, LayerPlacement::kEnds);
  EXPECT_LE(RunByHand(schedule, bytes, 2560 + 2304).waiting, 1);
}

}  // namespace
}  // namespace blockswap::offload
