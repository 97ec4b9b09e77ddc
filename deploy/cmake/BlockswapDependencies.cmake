# SPDX-License-Identifier: Apache-2.0
# Finds every library the project uses; each one that is missing is named with the package that brings it.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

function(_blockswap_require found what package)
  if(NOT ${found})
    message(FATAL_ERROR "${what} was not found. Run deploy/bootstrap.sh, or install the package ${package}.")
  endif()
endfunction()

find_package(absl CONFIG QUIET)
_blockswap_require(absl_FOUND "abseil" "libabsl-dev")

# gRPC and protobuf come through pkg-config: the CMake packages would meet the dummy protobuf targets of the LibTorch wheel.
pkg_check_modules(PROTOBUF QUIET IMPORTED_TARGET protobuf)
_blockswap_require(PROTOBUF_FOUND "protobuf" "libprotobuf-dev")
pkg_check_modules(GRPCPP QUIET IMPORTED_TARGET grpc++)
_blockswap_require(GRPCPP_FOUND "gRPC for C++" "libgrpc++-dev")
find_program(BLOCKSWAP_PROTOC protoc)
_blockswap_require(BLOCKSWAP_PROTOC "protoc" "protobuf-compiler")
find_program(BLOCKSWAP_GRPC_CPP_PLUGIN grpc_cpp_plugin)
_blockswap_require(BLOCKSWAP_GRPC_CPP_PLUGIN "grpc_cpp_plugin" "protobuf-compiler-grpc")
add_library(blockswap::protobuf ALIAS PkgConfig::PROTOBUF)
find_library(BLOCKSWAP_GRPCPP_REFLECTION grpc++_reflection)
_blockswap_require(BLOCKSWAP_GRPCPP_REFLECTION "gRPC reflection" "libgrpc++-dev")
add_library(blockswap_grpc INTERFACE)
target_link_libraries(blockswap_grpc INTERFACE PkgConfig::GRPCPP ${BLOCKSWAP_GRPCPP_REFLECTION})
add_library(blockswap::grpc ALIAS blockswap_grpc)

pkg_check_modules(SQLITE QUIET IMPORTED_TARGET sqlite3)
_blockswap_require(SQLITE_FOUND "SQLite" "libsqlite3-dev")
add_library(blockswap::sqlite ALIAS PkgConfig::SQLITE)
pkg_check_modules(YAML_CPP QUIET IMPORTED_TARGET yaml-cpp)
_blockswap_require(YAML_CPP_FOUND "yaml-cpp" "libyaml-cpp-dev")
add_library(blockswap::yaml_cpp ALIAS PkgConfig::YAML_CPP)
pkg_check_modules(PNG QUIET IMPORTED_TARGET libpng)
_blockswap_require(PNG_FOUND "libpng" "libpng-dev")
add_library(blockswap::png ALIAS PkgConfig::PNG)
pkg_check_modules(CRYPTO QUIET IMPORTED_TARGET libcrypto)
_blockswap_require(CRYPTO_FOUND "OpenSSL" "libssl-dev")
add_library(blockswap::crypto ALIAS PkgConfig::CRYPTO)

find_package(nlohmann_json CONFIG QUIET)
_blockswap_require(nlohmann_json_FOUND "nlohmann-json" "nlohmann-json3-dev")
find_package(tomlplusplus CONFIG QUIET)
if(NOT tomlplusplus_FOUND)
  pkg_check_modules(TOMLPLUSPLUS QUIET IMPORTED_TARGET tomlplusplus)
  _blockswap_require(TOMLPLUSPLUS_FOUND "toml++" "libtomlplusplus-dev")
  add_library(tomlplusplus::tomlplusplus ALIAS PkgConfig::TOMLPLUSPLUS)
endif()
find_package(CLI11 CONFIG QUIET)
_blockswap_require(CLI11_FOUND "CLI11" "libcli11-dev")
find_package(spdlog CONFIG QUIET)
_blockswap_require(spdlog_FOUND "spdlog" "libspdlog-dev")
find_package(prometheus-cpp CONFIG QUIET)
_blockswap_require(prometheus-cpp_FOUND "prometheus-cpp" "prometheus-cpp-dev")
find_library(BLOCKSWAP_CIVETWEB_CPP civetweb-cpp)
find_library(BLOCKSWAP_CIVETWEB civetweb)
find_path(BLOCKSWAP_CIVETWEB_INCLUDE CivetServer.h)
_blockswap_require(BLOCKSWAP_CIVETWEB_INCLUDE "civetweb" "libcivetweb-dev")
add_library(blockswap_civetweb INTERFACE)
target_include_directories(blockswap_civetweb SYSTEM INTERFACE ${BLOCKSWAP_CIVETWEB_INCLUDE})
target_link_libraries(blockswap_civetweb INTERFACE ${BLOCKSWAP_CIVETWEB_CPP} ${BLOCKSWAP_CIVETWEB} Threads::Threads)
add_library(blockswap::civetweb ALIAS blockswap_civetweb)

if(BLOCKSWAP_BUILD_TESTS)
  find_package(GTest CONFIG QUIET)
  _blockswap_require(GTest_FOUND "GoogleTest" "libgtest-dev libgmock-dev")
endif()

# The toolchain directory made by deploy/bootstrap.sh holds LibTorch and, where the machine has no CUDA 13, its compiler.
set(BLOCKSWAP_TOOLCHAIN_DIR "" CACHE PATH "Directory made by deploy/bootstrap.sh; empty asks deploy/toolchain-dir.sh")
set(_toolchain "${BLOCKSWAP_TOOLCHAIN_DIR}")
if(_toolchain STREQUAL "")
  execute_process(COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/deploy/toolchain-dir.sh
    OUTPUT_VARIABLE _toolchain OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(GLOB _torch_candidates "${_toolchain}/venv/lib/python3*/site-packages/torch")

if(BLOCKSWAP_WITH_TORCH)
  if(NOT _torch_candidates)
    message(FATAL_ERROR "LibTorch was not found below '${_toolchain}'. Run deploy/bootstrap.sh, which installs "
                        "torch 2.11.0 there, or configure with -DBLOCKSWAP_WITH_TORCH=OFF.")
  endif()
  list(GET _torch_candidates 0 BLOCKSWAP_TORCH_ROOT)
  # torch_cpu and c10 alone: TorchConfig.cmake would drag CUDA discovery in, and linking torch_cuda costs 230 MiB of
  # memory and a slow start; the worker loads the CUDA backend by dlopen only when its device is a CUDA device.
  add_library(blockswap_torch INTERFACE)
  target_include_directories(blockswap_torch SYSTEM INTERFACE
    ${BLOCKSWAP_TORCH_ROOT}/include ${BLOCKSWAP_TORCH_ROOT}/include/torch/csrc/api/include)
  target_link_libraries(blockswap_torch INTERFACE
    ${BLOCKSWAP_TORCH_ROOT}/lib/libtorch_cpu.so ${BLOCKSWAP_TORCH_ROOT}/lib/libc10.so)
  target_link_options(blockswap_torch INTERFACE -Wl,-rpath,${BLOCKSWAP_TORCH_ROOT}/lib)
  target_compile_definitions(blockswap_torch INTERFACE
    BLOCKSWAP_TORCH_VERSION="2.11.0" BLOCKSWAP_TORCH_LIB_DIR="${BLOCKSWAP_TORCH_ROOT}/lib")
  add_library(blockswap::torch ALIAS blockswap_torch)
endif()

if(BLOCKSWAP_WITH_CUDA)
  file(GLOB _cuda_wheels "${_toolchain}/venv/lib/python3*/site-packages/nvidia/cu13")
  find_path(BLOCKSWAP_CUDA_INCLUDE cuda_runtime.h
    HINTS ENV CUDA_HOME PATHS /usr/local/cuda/include /usr/local/cuda/targets/x86_64-linux/include
    PATH_SUFFIXES include)
  find_library(BLOCKSWAP_CUDART_STATIC cudart_static
    HINTS ENV CUDA_HOME PATHS /usr/local/cuda/lib64 PATH_SUFFIXES lib lib64)
  if(_cuda_wheels AND (NOT BLOCKSWAP_CUDA_INCLUDE OR NOT BLOCKSWAP_CUDART_STATIC))
    list(GET _cuda_wheels 0 _cuda_wheel)
    set(BLOCKSWAP_CUDA_INCLUDE "${_cuda_wheel}/include" CACHE PATH "" FORCE)
    find_library(BLOCKSWAP_CUDART_STATIC_WHEEL cudart_static PATHS "${_cuda_wheel}/lib" NO_DEFAULT_PATH)
    set(BLOCKSWAP_CUDART_STATIC "${BLOCKSWAP_CUDART_STATIC_WHEEL}" CACHE FILEPATH "" FORCE)
  endif()
  _blockswap_require(BLOCKSWAP_CUDA_INCLUDE "the CUDA 13 runtime header" "of the CUDA toolkit, or let deploy/bootstrap.sh fetch it")
  _blockswap_require(BLOCKSWAP_CUDART_STATIC "the static CUDA 13 runtime" "of the CUDA toolkit, or let deploy/bootstrap.sh fetch it")
  add_library(blockswap_cudart INTERFACE)
  target_include_directories(blockswap_cudart SYSTEM INTERFACE ${BLOCKSWAP_CUDA_INCLUDE})
  target_link_libraries(blockswap_cudart INTERFACE ${BLOCKSWAP_CUDART_STATIC} Threads::Threads dl rt)
  target_compile_definitions(blockswap_cudart INTERFACE BLOCKSWAP_WITH_CUDA=1)
  add_library(blockswap::cudart ALIAS blockswap_cudart)
endif()
