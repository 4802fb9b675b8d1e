# The build functions of the project.
#
#   mr_library(<folder> [DEPS ...] [TEST_DEPS ...])   called in the folder's CMakeLists.txt
#       *.cpp           -> library mr_<folder> ("/" becomes "_"); INTERFACE while there is no .cpp
#       *_test.cpp      -> one gtest binary <folder>_test
#       *_main.cpp      -> one program each, named without "_main", linked with the library
#       main.cpp        -> a program named as the folder
#       *_test.py       -> a test each; MR_BIN and MR_SOURCE_DIR are in its environment
#   mr_test(<name> SOURCES ... [DEPS ...])            one more gtest binary
#   mr_fuzz(<name> SOURCES ... [DEPS ...])            libFuzzer target, or a corpus replayer
#   mr_bench(<name> SOURCES ... [DEPS ...])           Google Benchmark program
#   mr_program(<name> SOURCES ... [DEPS ...])         plain program
#
# In DEPS a folder stands for its library ("driver/common"); a name with "::" is taken as it is.

add_library(mr_flags INTERFACE)
target_compile_options(mr_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror
  # A fused multiply-add would make the same seed differ between compilers and machines.
  -ffp-contract=off
  # Keeps assertion messages free of the place the tree was built in.
  -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 sees overflows in std::string and std::vector at -O3 that are none.
  target_compile_options(mr_flags INTERFACE -Wno-stringop-overflow -Wno-restrict
    $<$<CONFIG:Release>:-Wno-array-bounds>)
endif()
if(MR_ARCH AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(mr_flags INTERFACE -march=${MR_ARCH})
endif()
if(MR_DASSERT)
  target_compile_definitions(mr_flags INTERFACE MR_DASSERT_ON=1)
endif()
if(MR_COVERAGE)
  # Atomic counters: tests of the drivers run threads.
  target_compile_options(mr_flags INTERFACE --coverage)
  target_link_options(mr_flags INTERFACE --coverage)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(mr_flags INTERFACE -fprofile-update=atomic -fprofile-abs-path)
  endif()
endif()
if(MR_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "MR_FUZZ needs clang (preset fuzz)")
endif()
if(MR_SANITIZE)
  target_compile_options(mr_flags INTERFACE
    -fsanitize=${MR_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(mr_flags INTERFACE -fsanitize=${MR_SANITIZE})
endif()
if(MR_FUZZ)
  target_compile_options(mr_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(mr_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

function(mr_targets out)
  set(result)
  foreach(dep IN LISTS ARGN)
    if(dep MATCHES "::" OR dep MATCHES "^mr_")
      list(APPEND result ${dep})
    else()
      string(REPLACE "/" "_" target ${dep})
      list(APPEND result mr_${target})
    endif()
  endforeach()
  set(${out} ${result} PARENT_SCOPE)
endfunction()

function(mr_library folder)
  cmake_parse_arguments(arg "" "" "DEPS;TEST_DEPS" ${ARGN})
  string(REPLACE "/" "_" name ${folder})
  mr_targets(deps ${arg_DEPS})
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  set(tests ${sources})
  set(mains ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER mains INCLUDE REGEX "[_/]main\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "(_(test|main|fuzz|bench)|/main)\\.cpp$")
  if(sources)
    add_library(mr_${name} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(mr_${name} PRIVATE mr_flags)
  else()
    add_library(mr_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(mr_${name} ${scope} ${PROJECT_SOURCE_DIR}/src)
  if(NOT CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/src/")
    # Test folders name each other's headers from the root: "tests/pair/network.h".
    target_include_directories(mr_${name} ${scope} ${PROJECT_SOURCE_DIR})
  endif()
  target_link_libraries(mr_${name} ${scope} ${deps})
  if(MR_TESTS AND tests)
    mr_test(${name}_test SOURCES ${tests} DEPS mr_${name} ${arg_TEST_DEPS})
  endif()
  foreach(main IN LISTS mains)
    get_filename_component(program ${main} NAME_WE)
    string(REGEX REPLACE "_main$" "" program ${program})
    if(program STREQUAL "main")
      set(program ${name})
    endif()
    mr_program(${program} SOURCES ${main} DEPS mr_${name})
  endforeach()
  mr_python_tests(${name})
endfunction()

function(mr_python_tests name)
  if(NOT MR_TESTS)
    return()
  endif()
  file(GLOB scripts CONFIGURE_DEPENDS *_test.py)
  foreach(script IN LISTS scripts)
    get_filename_component(test ${script} NAME_WE)
    add_test(NAME ${name}:${test} COMMAND Python3::Interpreter ${script})
    set_tests_properties(${name}:${test} PROPERTIES TIMEOUT 300
      ENVIRONMENT "MR_BIN=${CMAKE_BINARY_DIR}/bin;MR_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
  endforeach()
endfunction()

function(mr_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  mr_targets(deps ${arg_DEPS})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE mr_flags ${deps} Threads::Threads)
endfunction()

# Tests find data files of the tree (vectors, scenarios) through MR_SOURCE_DIR.
function(mr_test name)
  if(NOT MR_TESTS)
    return()
  endif()
  mr_program(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE GTest::gtest_main)
  if(TARGET rapidcheck)
    target_link_libraries(${name} PRIVATE rapidcheck)
    target_compile_definitions(${name} PRIVATE MR_HAVE_RAPIDCHECK=1)
  endif()
  target_compile_definitions(${name} PRIVATE
    MR_SOURCE_DIR="${PROJECT_SOURCE_DIR}" MR_BINARY_DIR="${PROJECT_BINARY_DIR}")
  # Properties run with one seed here, so a red run repeats; run the binary by hand to explore.
  gtest_discover_tests(${name} TEST_PREFIX "${name}:" DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 300 ENVIRONMENT "RC_PARAMS=seed=20260801")
endfunction()

function(mr_fuzz name)
  mr_program(${name} ${ARGN})
  set(corpus ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
  if(MR_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    if(NOT EXISTS ${corpus})
      set(corpus)
    endif()
    add_test(NAME ${name}:corpus COMMAND ${name} -runs=0 ${corpus})
  else()
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/fuzz/corpus_runner.cpp)
    add_test(NAME ${name}:corpus COMMAND ${name} ${corpus})
  endif()
  set_tests_properties(${name}:corpus PROPERTIES TIMEOUT 300)
endfunction()

function(mr_bench name)
  if(NOT TARGET benchmark::benchmark_main)
    return()
  endif()
  mr_program(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE benchmark::benchmark_main)
endfunction()
