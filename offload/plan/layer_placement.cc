// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/layer_placement.h"

#include <algorithm>
#include <limits>

namespace blockswap::offload {
namespace {

// Placements that did not come back to where they began after so many cycles are made to.
constexpr int kMostCycles = 10;
constexpr int kNoUnit = -1;

// Times count visits since the first cycle began.
struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
  int unit = kNoUnit;  // whole in this segment; kNoUnit: nothing of use
  int last_use = -1;   // of these bytes
};

struct PlacedLoad {
  int after = 0;
  int unit = 0;
  int64_t offset = 0;
};

class Placer {
 public:
  Placer(const std::vector<int>& visits, const std::vector<int64_t>& bytes, int64_t window_bytes,
         LayerPlacement placement)
      : visits_(visits),
        bytes_(bytes),
        window_bytes_(window_bytes),
        placement_(placement),
        visits_of_(bytes.size()),
        gone_since_(bytes.size(), -1),
        segments_{{.end = window_bytes}} {
    for (int visit = 0; visit < length(); ++visit) {
      visits_of_[static_cast<size_t>(visits[static_cast<size_t>(visit)])].push_back(visit);
    }
  }

  int length() const { return static_cast<int>(visits_.size()); }
  const std::vector<Segment>& segments() const { return segments_; }

  std::vector<PlacedLoad> RunCycle(int cycle) {
    std::vector<PlacedLoad> loads;
    for (int visit = 0; visit < length(); ++visit) {
      const int now = cycle * length() + visit;
      const int unit = visits_[static_cast<size_t>(visit)];
      if (Segment* const there = Find(unit); there != nullptr) {
        there->last_use = now;
        continue;
      }
      const Choice choice = Choose(unit, now);
      // Not while the unit is still there from before, and never more than a cycle ahead: a cycle
      // lists each load once.
      const int after =
          std::max({choice.after, gone_since_[static_cast<size_t>(unit)], now - length() + 1});
      loads.push_back({after, unit, choice.offset});
      Place(unit, choice.offset, now, after);
    }
    return loads;
  }

 private:
  struct Choice {
    int64_t offset = 0;
    int after = 0;     // the last use of the bytes
    int next_use = 0;  // the earliest of what is lost
  };

  Segment* Find(int unit) {
    const auto found = std::find_if(segments_.begin(), segments_.end(),
                                    [&](const Segment& s) { return s.unit == unit; });
    return found == segments_.end() ? nullptr : &*found;
  }

  int NextUse(int unit, int now) const {
    const std::vector<int>& visits = visits_of_[static_cast<size_t>(unit)];
    const int visit = now % length();
    const auto next = std::upper_bound(visits.begin(), visits.end(), visit);
    return next != visits.end() ? now - visit + *next : now - visit + length() + visits.front();
  }

  Choice Evaluate(int64_t offset, int unit, int now) const {
    Choice choice{.offset = offset, .after = -1, .next_use = std::numeric_limits<int>::max()};
    const int64_t end = offset + bytes_[static_cast<size_t>(unit)];
    for (const Segment& segment : segments_) {
      if (segment.end <= offset || end <= segment.begin) continue;
      choice.after = std::max(choice.after, segment.last_use);
      if (segment.unit != kNoUnit) {
        choice.next_use = std::min(choice.next_use, NextUse(segment.unit, now));
      }
    }
    return choice;
  }

  bool Better(const Choice& a, const Choice& b, int now) const {
    if (placement_ == LayerPlacement::kFarthest) {
      // What the visit before uses would make this load wait for it.
      const bool a_waits = a.after >= now - 1;
      const bool b_waits = b.after >= now - 1;
      if (a_waits != b_waits) return b_waits;
      if (a.next_use != b.next_use) return a.next_use > b.next_use;
    }
    if (a.after != b.after) return a.after < b.after;
    if (a.next_use != b.next_use) return a.next_use > b.next_use;
    return a.offset < b.offset;
  }

  Choice Choose(int unit, int now) const {
    const int64_t bytes = bytes_[static_cast<size_t>(unit)];
    std::vector<int64_t> offsets = {0, window_bytes_ - bytes};
    if (placement_ != LayerPlacement::kEnds) {
      for (const Segment& segment : segments_) {
        offsets.insert(offsets.end(), {segment.begin, segment.end - bytes});
      }
    }
    Choice best = Evaluate(0, unit, now);
    for (int64_t offset : offsets) {
      if (offset < 0 || offset + bytes > window_bytes_) continue;
      const Choice choice = Evaluate(offset, unit, now);
      if (Better(choice, best, now)) best = choice;
    }
    return best;
  }

  // What a load cuts into is of no use any more, but its bytes keep the time of their last use.
  void Place(int unit, int64_t offset, int now, int after) {
    const int64_t end = offset + bytes_[static_cast<size_t>(unit)];
    std::vector<Segment> segments;
    const auto keep = [&](int64_t from, int64_t to, const Segment& of, bool whole) {
      if (from < to) segments.push_back({from, to, whole ? of.unit : kNoUnit, of.last_use});
    };
    bool placed = false;
    for (const Segment& segment : segments_) {
      const bool whole = segment.end <= offset || end <= segment.begin;
      if (!whole && segment.unit != kNoUnit) {
        gone_since_[static_cast<size_t>(segment.unit)] = after;
      }
      keep(segment.begin, std::min(segment.end, offset), segment, whole);
      if (!placed && segment.end > offset) {
        segments.push_back({offset, end, unit, now});
        placed = true;
      }
      keep(std::max(segment.begin, end), segment.end, segment, whole);
    }
    segments_.swap(segments);
  }

  const std::vector<int>& visits_;
  const std::vector<int64_t>& bytes_;
  const int64_t window_bytes_;
  const LayerPlacement placement_;
  std::vector<std::vector<int>> visits_of_;  // by unit, ascending
  std::vector<int> gone_since_;              // by unit: after which visit it was lost
  std::vector<Segment> segments_;            // cover the window, in order
};

std::vector<LayerPlace> PlacesOf(const std::vector<Segment>& segments) {
  std::vector<LayerPlace> places;
  for (const Segment& segment : segments) {
    if (segment.unit != kNoUnit) places.push_back({segment.unit, segment.begin});
  }
  return places;
}

// Whether a cycle that starts from `b` is one that starts from `a`, `shift` visits later.
bool SameStart(const std::vector<Segment>& a, const std::vector<Segment>& b, int shift) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Segment& x, const Segment& y) {
                      return x.begin == y.begin && x.end == y.end && x.unit == y.unit &&
                             x.last_use + shift == y.last_use;
                    });
}

// What is there once `loads` have been made over `places`.
std::vector<LayerPlace> Apply(std::vector<LayerPlace> places, const std::vector<LayerLoad>& loads,
                              const std::vector<int64_t>& bytes) {
  for (const LayerLoad& load : loads) {
    const int64_t end = load.offset + bytes[static_cast<size_t>(load.unit)];
    places.erase(std::remove_if(places.begin(), places.end(),
                                [&](const LayerPlace& place) {
                                  return place.unit == load.unit ||
                                         (place.offset < end &&
                                          load.offset < place.offset +
                                                            bytes[static_cast<size_t>(place.unit)]);
                                }),
                 places.end());
    places.push_back({load.unit, load.offset});
  }
  return places;
}

}  // namespace

LayerSchedule PlaceLayers(const std::vector<int>& visits, const std::vector<int64_t>& bytes,
                          int64_t window_bytes, LayerPlacement placement) {
  LayerSchedule schedule;
  schedule.visits = visits;
  if (visits.empty()) return schedule;
  Placer placer(visits, bytes, window_bytes, placement);
  const int length = placer.length();
  std::vector<Segment> start;
  std::vector<PlacedLoad> loads;
  int cycle = 0;
  bool closed = false;
  for (; cycle < kMostCycles && !closed; ++cycle) {
    start = placer.segments();
    loads = placer.RunCycle(cycle);
    closed = cycle > 0 && SameStart(start, placer.segments(), length);
  }
  const int began = (cycle - 1) * length;
  const std::vector<LayerPlace> first = PlacesOf(start);
  // Loads that may start before the cycle does are made at the end of the one before it.
  std::vector<LayerLoad> ahead;
  for (const PlacedLoad& load : loads) {
    const int after = load.after - began;
    if (after >= 0) {
      schedule.loads.push_back({after, load.unit, load.offset});
    } else {
      // Readers at the end of a cycle that ended elsewhere are not those of the cycle before.
      ahead.push_back({closed ? after + length : length - 1, load.unit, load.offset});
    }
  }
  if (!closed) {
    const std::vector<LayerPlace> last = PlacesOf(placer.segments());
    for (const LayerPlace& place : first) {
      if (std::find(last.begin(), last.end(), place) != last.end()) continue;
      schedule.loads.push_back({length - 1, place.unit, place.offset});
    }
  }
  schedule.initial = Apply(first, ahead, bytes);
  schedule.loads.insert(schedule.loads.end(), ahead.begin(), ahead.end());
  std::stable_sort(
      schedule.loads.begin(), schedule.loads.end(),
      [](const LayerLoad& a, const LayerLoad& b) { return a.after_visit < b.after_visit; });
  return schedule;
}

}  // namespace blockswap::offload
