#include "source.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "file_names.h"
#include "file_sink.h"

namespace metaroce::tool {
namespace {

namespace fs = std::filesystem;

class Lister {
 public:
  Lister(std::vector<SourceItem>& items, const std::function<void(const std::string&)>& warn)
      : items_(items), warn_(warn) {}

  Expected<void, std::string> add_named(const std::string& path) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) {
      return unexpected(system_error("cannot send " + printable(path), errno));
    }
    if (S_ISLNK(info.st_mode)) {
      return unexpected("cannot send " + printable(path) +
                        ": it is a symbolic link; name its target instead");
    }
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
      return unexpected("cannot send " + printable(path) + ": it is neither a file nor a folder");
    }
    std::error_code error;
    const std::string name = fs::canonical(path, error).filename().string();
    if (error || name.empty()) {
      return unexpected("cannot send " + printable(path) + ": it has no name of its own");
    }
    if (std::string why = check_name(name); !why.empty()) {
      return unexpected("cannot send " + printable(path) + ": " + why);
    }
    add(path, name, info);
    if (S_ISDIR(info.st_mode)) return walk(path, name);
    return {};
  }

 private:
  void add(const std::string& path, const std::string& name, const struct stat& info) {
    SourceItem item;
    item.path = path;
    item.offer.name = name;
    item.offer.mode = static_cast<uint16_t>(info.st_mode & 0777);
    item.offer.mtime_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
    if (S_ISDIR(info.st_mode)) {
      item.offer.kind = ItemKind::kDirectory;
      item.offer.size = 0;
    } else {
      item.offer.size = static_cast<uint64_t>(info.st_size);
    }
    items_.push_back(std::move(item));
  }

  Expected<void, std::string> walk(const std::string& folder, const std::string& name) {
    std::error_code error;
    std::vector<std::string> entries;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      entries.push_back(it->path().filename().string());
    }
    if (error) {
      return unexpected("cannot read the folder " + printable(folder) + ": " + error.message());
    }
    std::sort(entries.begin(), entries.end());
    for (const std::string& entry : entries) {
      const std::string path = folder + "/" + entry;
      const std::string full = name + "/" + entry;
      struct stat info {};
      if (::lstat(path.c_str(), &info) != 0) {
        warn_("skipped " + printable(system_error(path, errno)));
      } else if (std::string why = check_name(full); !why.empty()) {
        warn_("skipped " + printable(path) + ": " + why);
      } else if (S_ISLNK(info.st_mode)) {
        warn_("skipped " + printable(path) + ": symbolic links are not sent");
      } else if (S_ISDIR(info.st_mode)) {
        add(path, full, info);
        if (auto walked = walk(path, full); !walked) return walked;
      } else if (S_ISREG(info.st_mode)) {
        add(path, full, info);
      } else {
        warn_("skipped " + printable(path) + ": neither a file nor a folder");
      }
    }
    return {};
  }

  std::vector<SourceItem>& items_;
  const std::function<void(const std::string&)>& warn_;
};

}  // namespace

Expected<std::vector<SourceItem>, std::string> list_sources(
    const std::vector<std::string>& paths, const std::string& stdin_name,
    const std::function<void(const std::string&)>& warn) {
  std::vector<SourceItem> items;
  Lister lister(items, warn);
  bool has_stdin = false;
  for (const std::string& path : paths) {
    if (path != "-") {
      if (auto added = lister.add_named(path); !added) return unexpected(added.error());
      continue;
    }
    if (has_stdin) return unexpected(std::string("standard input (-) can be sent only once"));
    has_stdin = true;
    if (std::string why = check_name(stdin_name); !why.empty()) {
      return unexpected("cannot name standard input \"" + printable(stdin_name) + "\": " + why);
    }
    SourceItem item;
    item.path = "-";
    item.offer.name = stdin_name;
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace metaroce::tool
