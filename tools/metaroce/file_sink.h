// Files on the receiving side: written under a temporary name, checked, then renamed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/expected.h"
#include "driver/common/descriptor.h"
#include "file_protocol.h"

namespace metaroce::tool {

enum class Overwrite : uint8_t { kNever, kAlways, kRename };

using driver::Descriptor;

/// Running SHA-256 (OpenSSL).
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void update(std::span<const std::byte> bytes);
  Sha256 finish();

 private:
  void* context_;
};

/// The folder that receives. Symbolic links below it are never followed.
class TargetFolder {
 public:
  /// Opens `path`, which has to be an existing folder.
  static Expected<TargetFolder, std::string> open(const std::string& path);

  /// Creates the folder `name` (checked by check_name) and its parents where missing.
  Expected<void, std::string> make_folder(const std::string& name) const;
  /// Opens the folder that holds `name`, creating what is missing; `leaf` gets the last component.
  Expected<Descriptor, std::string> open_parent(const std::string& name, std::string& leaf) const;

 private:
  explicit TargetFolder(Descriptor fd) : fd_(std::move(fd)) {}
  Expected<Descriptor, std::string> descend(std::string_view folder) const;
  Descriptor fd_;
};

/// One file being received. The temporary file goes away unless finish() succeeded.
class IncomingFile {
 public:
  /// Checks name and policy, creates the temporary file and reserves the announced size.
  static Expected<std::unique_ptr<IncomingFile>, std::string> create(const TargetFolder& folder,
                                                                     const Offer& offer,
                                                                     Overwrite overwrite,
                                                                     const std::string& tag);
  ~IncomingFile();
  IncomingFile(const IncomingFile&) = delete;
  IncomingFile& operator=(const IncomingFile&) = delete;

  uint64_t written() const { return written_; }
  Expected<void, std::string> append(std::span<const std::byte> bytes);
  /// Compares size and digest, flushes, renames. Returns the name the file got.
  Expected<std::string, std::string> finish(const Done& done);

 private:
  IncomingFile() = default;
  Expected<std::string, std::string> publish();

  Offer offer_;
  Overwrite overwrite_ = Overwrite::kNever;
  Descriptor parent_;
  Descriptor file_;
  std::string leaf_;
  std::string temporary_;
  uint64_t written_ = 0;
  Hasher hasher_;
};

/// "WHAT: cause" for the current errno; names the free space when the disk is full.
std::string system_error(const std::string& what, int error);

}  // namespace metaroce::tool
