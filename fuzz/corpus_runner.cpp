// Stand-in for libFuzzer's main: runs every corpus file once, so each build replays old findings.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> collect(const fs::path& where) {
  std::vector<fs::path> files;
  if (fs::is_regular_file(where)) {
    files.push_back(where);
  } else if (fs::is_directory(where)) {
    for (const auto& entry : fs::recursive_directory_iterator(where)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  // Directory order differs between file systems; a finding should come at the same place.
  std::sort(files.begin(), files.end());
  return files;
}

bool run_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return false;
  std::vector<char> bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const uint8_t nothing = 0;
  LLVMFuzzerTestOneInput(&nothing, 0);
  size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    for (const fs::path& file : collect(argv[i])) {
      if (!run_file(file)) {
        std::fprintf(stderr, "cannot read %s\n", file.c_str());
        return 1;
      }
      ++count;
    }
  }
  std::printf("%zu corpus files, no finding\n", count);
  return 0;
}
