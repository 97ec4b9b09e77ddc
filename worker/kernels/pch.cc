// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/pch.h"
