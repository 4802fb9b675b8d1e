# What the project stands on. Every package is a Debian 12 package, listed once in ./dev.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(tl-expected REQUIRED)       # libexpected-dev
find_package(OpenSSL 3 REQUIRED)         # libssl-dev
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)  # libisal-dev, CRC32C
pkg_check_modules(MNL REQUIRED IMPORTED_TARGET libmnl)    # libmnl-dev, rtnetlink of the lab
pkg_check_modules(BPF REQUIRED IMPORTED_TARGET libbpf)    # libbpf-dev, rules of the lab's links
find_package(fmt REQUIRED)               # libfmt-dev
find_package(spdlog REQUIRED)            # libspdlog-dev
find_package(CLI11 REQUIRED)             # libcli11-dev
find_package(tomlplusplus REQUIRED)      # libtomlplusplus-dev
find_package(nlohmann_json REQUIRED)     # nlohmann-json3-dev
find_package(Python3 COMPONENTS Interpreter REQUIRED)

if(MR_TESTS)
  find_package(GTest REQUIRED)           # libgtest-dev
  find_package(rapidcheck QUIET)         # librapidcheck-dev, <rapidcheck/gtest.h> comes with it
endif()
if(MR_BENCH)
  find_package(benchmark QUIET)          # libbenchmark-dev
endif()
if(MR_TESTS)
  include(GoogleTest)
endif()
