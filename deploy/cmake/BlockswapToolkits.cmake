# SPDX-License-Identifier: Apache-2.0
# Looks at a LibTorch and a CUDA toolkit before anything is compiled against them: a wrong one ends the configuration with a sentence,
# not the link with a page of undefined references. Also runs alone, which is how it is tested:
#   cmake -DTORCH=DIR -DCUDA_INCLUDE=DIR -P BlockswapToolkits.cmake

set(BLOCKSWAP_TORCH_WANTED 2.11)  # what bits are promised on, see deploy/requirements.in
set(BLOCKSWAP_CUDA_WANTED 13)

# Sets `version` to that of the LibTorch in `root`.
function(blockswap_check_torch root with_cuda version)
  set(again "Run deploy/bootstrap.sh, which installs the right one, and configure in an empty directory.")
  set(header "${root}/include/torch/headeronly/version.h")
  if(NOT EXISTS "${header}" OR NOT EXISTS "${root}/lib/libc10.so")
    message(FATAL_ERROR "'${root}' is not a LibTorch ${BLOCKSWAP_TORCH_WANTED}: include/torch/headeronly/version.h or lib/libc10.so "
                        "is missing. ${again}")
  endif()
  set(found "")
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    file(STRINGS "${header}" line REGEX "#define TORCH_VERSION_${part} ")
    string(REGEX MATCH "[0-9]+" number "${line}")
    list(APPEND found "${number}")
  endforeach()
  list(JOIN found "." found)
  if(NOT found MATCHES "^${BLOCKSWAP_TORCH_WANTED}\\.")
    message(FATAL_ERROR "LibTorch in '${root}' is ${found}, ${BLOCKSWAP_TORCH_WANTED} is needed. ${again}")
  endif()
  # Names of functions that take strings tell which of the two std::string they were compiled with.
  file(STRINGS "${root}/lib/libc10.so" new_strings REGEX "__cxx11" LIMIT_COUNT 1)
  if(NOT new_strings)
    message(FATAL_ERROR "LibTorch in '${root}' was compiled with the old string ABI (_GLIBCXX_USE_CXX11_ABI=0), which does not "
                        "link with this compiler's libraries. ${again}")
  endif()
  if(with_cuda AND NOT EXISTS "${root}/lib/libtorch_cuda.so")
    message(FATAL_ERROR "LibTorch in '${root}' is the CPU-only build: lib/libtorch_cuda.so is missing. ${again} "
                        "Or configure with -DBLOCKSWAP_WITH_CUDA=OFF for the host device alone.")
  endif()
  set(${version} "${found}" PARENT_SCOPE)
endfunction()

# Sets `version` to that of the CUDA runtime whose headers are in `include`.
function(blockswap_check_cuda include version)
  if(NOT EXISTS "${include}/cuda_runtime_api.h")
    message(FATAL_ERROR "no CUDA runtime headers in '${include}'. Run deploy/bootstrap.sh, which fetches CUDA "
                        "${BLOCKSWAP_CUDA_WANTED} where the system has none, or configure with -DBLOCKSWAP_WITH_CUDA=OFF.")
  endif()
  file(STRINGS "${include}/cuda_runtime_api.h" line REGEX "#define CUDART_VERSION +[0-9]+")
  string(REGEX MATCH "[0-9]+" number "${line}")
  math(EXPR major "0${number} / 1000")
  math(EXPR minor "0${number} % 1000 / 10")
  if(NOT major EQUAL BLOCKSWAP_CUDA_WANTED)
    message(FATAL_ERROR "the CUDA runtime in '${include}' is ${major}.${minor}, ${BLOCKSWAP_CUDA_WANTED} is needed. Run "
                        "deploy/bootstrap.sh, or name another with CUDA_HOME.")
  endif()
  set(${version} "${major}.${minor}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  blockswap_check_torch("${TORCH}" ON torch)
  blockswap_check_cuda("${CUDA_INCLUDE}" cuda)
  message(STATUS "torch ${torch} cuda ${cuda}")
endif()
