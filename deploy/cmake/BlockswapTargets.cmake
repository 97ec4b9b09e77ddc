# SPDX-License-Identifier: Apache-2.0
# The four functions every CMakeLists.txt of the project is written with.
#
#   blockswap_library(NAME offload_plan HDRS a.h SRCS a.cc DEPS absl::status)   -> blockswap::offload_plan
#   blockswap_executable(NAME blockswapd SRCS main.cc DEPS ...)
#   blockswap_test(NAME planner_test SRCS planner_test.cc DEPS ... LABELS unit [ENVIRONMENT A=b] [TIMEOUT s])
#   blockswap_benchmark(NAME swap_bench SRCS swap_bench.cc DEPS ...)
#
# Options: TORCH (the target's sources include torch headers: uses blockswap::torch and the shared precompiled header).

include(CheckIPOSupported)

add_library(blockswap_warnings INTERFACE)
target_compile_options(blockswap_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wnon-virtual-dtor -Wold-style-cast -Werror=unused-result
  $<$<BOOL:${BLOCKSWAP_WERROR}>:-Werror>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # Of -Wconversion only what g++ means by it: int indices into vectors are our way (sizes are signed).
  $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>)

# LibTorch's macros need casts and shadowing that our own warnings forbid; linked after blockswap_warnings, so it has the last word.
add_library(blockswap_torch_warnings INTERFACE)
target_compile_options(blockswap_torch_warnings INTERFACE -Wno-old-style-cast -Wno-shadow)

add_library(blockswap_sanitizer INTERFACE)
if(NOT BLOCKSWAP_SANITIZER STREQUAL "" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 with a sanitizer takes a member of std::regex's scanner for uninitialised.
  target_compile_options(blockswap_sanitizer INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
endif()
if(BLOCKSWAP_SANITIZER STREQUAL "address")
  target_compile_options(blockswap_sanitizer INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(blockswap_sanitizer INTERFACE -fsanitize=address,undefined)
elseif(BLOCKSWAP_SANITIZER STREQUAL "thread")
  target_compile_options(blockswap_sanitizer INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread>)
  target_link_options(blockswap_sanitizer INTERFACE -fsanitize=thread)
elseif(BLOCKSWAP_SANITIZER STREQUAL "fuzzer")
  # Coverage of our code for libFuzzer; the targets in tests/fuzz link the driver.
  target_compile_options(blockswap_sanitizer INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(blockswap_sanitizer INTERFACE -fsanitize=address,undefined)
elseif(NOT BLOCKSWAP_SANITIZER STREQUAL "")
  message(FATAL_ERROR "BLOCKSWAP_SANITIZER is '${BLOCKSWAP_SANITIZER}'; it may be empty, address, thread or fuzzer")
endif()

# The distributions' g++ links programs position independent; their symbols are bound at the start and read only from then on.
# Checks of stack and buffers as Ubuntu's g++ makes them by itself, Debian's not; not beside a sanitizer, which has its own.
add_library(blockswap_hardening INTERFACE)
if(BLOCKSWAP_SANITIZER STREQUAL "" AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_options(blockswap_hardening INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong;-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
endif()
target_link_options(blockswap_hardening INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)

find_program(BLOCKSWAP_CCACHE ccache)
if(BLOCKSWAP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The precompiled header needs the sloppiness, else every source that uses it misses.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros ${BLOCKSWAP_CCACHE})
endif()
find_program(BLOCKSWAP_MOLD mold)
if(BLOCKSWAP_MOLD AND BLOCKSWAP_SANITIZER STREQUAL "")
  add_link_options(-fuse-ld=mold)
endif()

function(_blockswap_configure target scope)
  target_link_libraries(${target} ${scope} $<BUILD_INTERFACE:blockswap_sanitizer> $<BUILD_INTERFACE:blockswap_hardening>)
  if(NOT scope STREQUAL "INTERFACE")
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:blockswap_warnings>)
  endif()
  target_include_directories(${target} ${scope} ${PROJECT_SOURCE_DIR})
endfunction()

function(_blockswap_use_torch target)
  target_link_libraries(${target} PUBLIC blockswap::torch)
  if(TARGET blockswap_torch_pch)
    target_precompile_headers(${target} REUSE_FROM blockswap_torch_pch)
  endif()
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:blockswap_torch_warnings>)
endfunction()

function(blockswap_library)
  cmake_parse_arguments(ARG "TORCH" "NAME" "HDRS;SRCS;DEPS" ${ARGN})
  set(target blockswap_${ARG_NAME})
  if(ARG_SRCS)
    add_library(${target} STATIC ${ARG_SRCS})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(blockswap::${ARG_NAME} ALIAS ${target})
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HDRS})
  target_link_libraries(${target} ${scope} ${ARG_DEPS})
  _blockswap_configure(${target} ${scope})
  if(ARG_TORCH AND ARG_SRCS)
    _blockswap_use_torch(${target})
  endif()
endfunction()

function(blockswap_executable)
  cmake_parse_arguments(ARG "TORCH" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS})
  _blockswap_configure(${ARG_NAME} PRIVATE)
  if(ARG_TORCH)
    target_link_libraries(${ARG_NAME} PRIVATE blockswap::torch blockswap_torch_warnings)
  endif()
endfunction()

function(blockswap_test)
  cmake_parse_arguments(ARG "TORCH" "NAME;TIMEOUT" "SRCS;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  _blockswap_configure(${ARG_NAME} PRIVATE)
  if(ARG_TORCH)
    target_link_libraries(${ARG_NAME} PRIVATE blockswap::torch blockswap_torch_warnings)
    if(TARGET blockswap_torch_pch)
      target_precompile_headers(${ARG_NAME} REUSE_FROM blockswap_torch_pch)
      target_compile_options(${ARG_NAME} PRIVATE -fPIC)  # the header was compiled for libraries
    endif()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  if(NOT BLOCKSWAP_SANITIZER STREQUAL "")
    # The compiler's own macros do not say it: proto/CMakeLists.txt undefines one of them.
    target_compile_definitions(${ARG_NAME} PRIVATE BLOCKSWAP_SANITIZED)
  endif()
  set(_blockswap_sanitized "")
  if(BLOCKSWAP_SANITIZER STREQUAL "address")
    set(_blockswap_sanitized "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp")
  elseif(BLOCKSWAP_SANITIZER STREQUAL "thread")
    # The distribution's gRPC is not instrumented, see the file.
    set(_blockswap_sanitized "TSAN_OPTIONS=ignore_noninstrumented_modules=1 suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
  endif()
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "BLOCKSWAP_BIN_DIR=${CMAKE_BINARY_DIR}/bin;BLOCKSWAP_SOURCE_DIR=${PROJECT_SOURCE_DIR};${_blockswap_sanitized};${ARG_ENVIRONMENT}")
endfunction()

function(blockswap_benchmark)
  if(BLOCKSWAP_BUILD_BENCH)
    blockswap_executable(${ARGN})
  endif()
endfunction()
