// SPDX-License-Identifier: Apache-2.0
// Random jobs, and the device bytes of their plans against what their runs take: never below, and
// close enough that a budget is spent rather than feared.
#ifndef BLOCKSWAP_TESTS_WORKER_TESTING_MEMORY_PREDICTION_H_
#define BLOCKSWAP_TESTS_WORKER_TESTING_MEMORY_PREDICTION_H_

namespace blockswap::worker::testing {

// In shapes below this whole blocks stream and saved inputs stay on the device. From it on, a third
// each: linears stream, inputs wait on the host, the base trains.
inline constexpr int kPlainShapes = 40;

// Trains jobs [first, last) of a fixed sequence; each plan is at most 5 % above the measured peak
// and at most 1 % below it.
void ExpectPredictedPeaks(int first, int last);

}  // namespace blockswap::worker::testing

#endif  // BLOCKSWAP_TESTS_WORKER_TESTING_MEMORY_PREDICTION_H_
