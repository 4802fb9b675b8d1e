#include "file_sink.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "file_names.h"

namespace metaroce::tool {

Hasher::Hasher() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr ||
      EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr) != 1) {
    std::fputs("metaroce: SHA-256 is not available in this OpenSSL\n", stderr);
    std::abort();
  }
}

Hasher::~Hasher() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void Hasher::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), bytes.data(), bytes.size());
}

Sha256 Hasher::finish() {
  Sha256 digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest.data(), &length);
  return digest;
}

std::string system_error(const std::string& what, int error) {
  return what + ": " + std::strerror(error);
}

namespace {

std::string disk_error(const std::string& what, int error, int fd, uint64_t needed) {
  std::string text = system_error(what, error);
  struct statvfs info {};
  if ((error == ENOSPC || error == EDQUOT) && fstatvfs(fd, &info) == 0) {
    const uint64_t free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
    text += " (disk full at the receiver: " + std::to_string(free_bytes) + " bytes free";
    if (needed != 0) text += ", " + std::to_string(needed) + " needed";
    text += ")";
  }
  return text;
}

}  // namespace

Expected<TargetFolder, std::string> TargetFolder::open(const std::string& path) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return unexpected(system_error("cannot open the folder " + path, errno));
  return TargetFolder(std::move(fd));
}

Expected<Descriptor, std::string> TargetFolder::descend(std::string_view folder) const {
  Descriptor at(::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!at.valid()) return unexpected(system_error("cannot open the target folder", errno));
  size_t begin = 0;
  while (begin < folder.size()) {
    size_t end = folder.find('/', begin);
    if (end == std::string_view::npos) end = folder.size();
    const std::string part(folder.substr(begin, end - begin));
    const std::string shown = printable(folder.substr(0, end));
    if (::mkdirat(at.get(), part.c_str(), 0755) != 0 && errno != EEXIST) {
      return unexpected(disk_error("cannot create the folder " + shown, errno, at.get(), 0));
    }
    // O_NOFOLLOW: a symbolic link in the target path must not lead out of the folder.
    Descriptor next(
        ::openat(at.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next.valid()) {
      if (errno == ENOTDIR || errno == ELOOP) {
        return unexpected(shown + " exists and is not a folder (symbolic links are not followed)");
      }
      return unexpected(system_error("cannot open the folder " + shown, errno));
    }
    at = std::move(next);
    begin = end + 1;
  }
  return at;
}

Expected<void, std::string> TargetFolder::make_folder(const std::string& name) const {
  auto opened = descend(name);
  if (!opened) return unexpected(opened.error());
  return {};
}

Expected<Descriptor, std::string> TargetFolder::open_parent(const std::string& name,
                                                            std::string& leaf) const {
  const size_t slash = name.rfind('/');
  if (slash == std::string::npos) {
    leaf = name;
    return descend("");
  }
  leaf = name.substr(slash + 1);
  return descend(std::string_view(name).substr(0, slash));
}

Expected<std::unique_ptr<IncomingFile>, std::string> IncomingFile::create(
    const TargetFolder& folder, const Offer& offer, Overwrite overwrite, const std::string& tag) {
  const std::string shown = printable(offer.name);
  if (std::string cause = check_name(offer.name); !cause.empty()) {
    return unexpected("refused \"" + shown + "\": " + cause);
  }
  std::unique_ptr<IncomingFile> file(new IncomingFile);
  file->offer_ = offer;
  file->overwrite_ = overwrite;
  auto parent = folder.open_parent(offer.name, file->leaf_);
  if (!parent) return unexpected("refused \"" + shown + "\": " + parent.error());
  file->parent_ = std::move(*parent);
  struct stat info {};
  if (::fstatat(file->parent_.get(), file->leaf_.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISDIR(info.st_mode)) {
      return unexpected("refused \"" + shown + "\": a folder has that name");
    }
    if (overwrite == Overwrite::kNever) {
      return unexpected("refused \"" + shown +
                        "\": it exists at the receiver (recv --overwrite always|rename)");
    }
  }
  const std::string temporary = ".metaroce-" + tag + ".part";
  file->file_ = Descriptor(::openat(file->parent_.get(), temporary.c_str(),
                                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file->file_.valid()) {
    return unexpected(
        disk_error("cannot create a temporary file for " + shown, errno, file->parent_.get(), 0));
  }
  file->temporary_ = temporary;
  if (offer.size != kUnknownSize && offer.size > 0) {
    if (offer.size > uint64_t{INT64_MAX}) return unexpected("refused \"" + shown + "\": its size");
    // Reserving first turns a full disk into an answer before any data is sent. A file system that
    // cannot reserve says so while writing.
    if (::fallocate(file->file_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(offer.size)) !=
            0 &&
        errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) {
      return unexpected(
          disk_error("no room for \"" + shown + "\"", errno, file->file_.get(), offer.size));
    }
  }
  return file;
}

IncomingFile::~IncomingFile() {
  if (!temporary_.empty()) ::unlinkat(parent_.get(), temporary_.c_str(), 0);
}

Expected<void, std::string> IncomingFile::append(std::span<const std::byte> bytes) {
  hasher_.update(bytes);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pwrite(file_.get(), bytes.data() + done, bytes.size() - done,
                               static_cast<off_t>(written_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n == 0 ? EIO : errno;
      return unexpected(disk_error("cannot write \"" + printable(offer_.name) + "\"", error,
                                   file_.get(), offer_.size == kUnknownSize ? 0 : offer_.size));
    }
    done += static_cast<size_t>(n);
  }
  written_ += bytes.size();
  return {};
}

Expected<std::string, std::string> IncomingFile::finish(const Done& done) {
  const std::string shown = printable(offer_.name);
  if (written_ != done.size) {
    return unexpected("\"" + shown + "\": " + std::to_string(written_) + " bytes arrived of " +
                      std::to_string(done.size));
  }
  if (hasher_.finish() != done.sha256) {
    return unexpected("\"" + shown + "\": the SHA-256 of what arrived differs from the sender's");
  }
  if (::fchmod(file_.get(), offer_.mode & 0777) != 0) {
    return unexpected(system_error("cannot set the mode of \"" + shown + "\"", errno));
  }
  if (offer_.mtime_ns != 0) {
    int64_t second = offer_.mtime_ns / 1'000'000'000;
    int64_t rest = offer_.mtime_ns % 1'000'000'000;
    if (rest < 0) {
      rest += 1'000'000'000;
      --second;
    }
    const struct timespec times[2] = {{0, UTIME_OMIT}, {second, rest}};
    ::futimens(file_.get(), times);  // a file system without times keeps the file all the same
  }
  if (::fsync(file_.get()) != 0) {
    return unexpected(disk_error("cannot flush \"" + shown + "\"", errno, file_.get(), 0));
  }
  return publish();
}

Expected<std::string, std::string> IncomingFile::publish() {
  const size_t slash = offer_.name.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : offer_.name.substr(0, slash + 1);
  std::string leaf = leaf_;
  for (int attempt = 1;; ++attempt) {
    const unsigned flags = overwrite_ == Overwrite::kAlways ? 0 : RENAME_NOREPLACE;
    int result = ::renameat2(parent_.get(), temporary_.c_str(), parent_.get(), leaf.c_str(), flags);
    if (result != 0 && errno == EINVAL && flags != 0) {
      // A file system without RENAME_NOREPLACE: a hard link gives the same promise.
      result = ::linkat(parent_.get(), temporary_.c_str(), parent_.get(), leaf.c_str(), 0);
      if (result == 0) ::unlinkat(parent_.get(), temporary_.c_str(), 0);
    }
    if (result == 0) {
      temporary_.clear();
      ::fsync(parent_.get());
      return folder + leaf;
    }
    if (errno != EEXIST || overwrite_ != Overwrite::kRename || attempt > 9999) break;
    leaf = leaf_ + "." + std::to_string(attempt);
  }
  const int error = errno;
  return unexpected(system_error("cannot give \"" + printable(offer_.name) + "\" its name", error));
}

}  // namespace metaroce::tool
