// Whole transfers over transports joined in memory: everything but the network.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "driver/common/clock.h"
#include "memory_transport.h"
#include "receiver.h"
#include "sender.h"
#include "source.h"

namespace metaroce::tool {
namespace {

namespace fs = std::filesystem;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "metaroce-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void write_file(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string noise(size_t bytes, uint64_t seed) {
  Rng rng(seed);
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(rng.next32());
  return out;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Transfer : public ::testing::Test {
 protected:
  void start_receiver(Overwrite overwrite, size_t links = 1) {
    ReceiverOptions options;
    options.overwrite = overwrite;
    options.slot_bytes = 4096;
    options.slots = 8;
    options.now = [] { return driver::now(); };
    std::vector<Transport*> transports;
    for (size_t i = 0; i < links; ++i) {
      receiver_side_.push_back(std::make_unique<MemoryTransport>(network_));
      sender_side_.push_back(std::make_unique<MemoryTransport>(network_));
      transports.push_back(receiver_side_.back().get());
    }
    receiver_ = std::make_unique<Receiver>(options, *TargetFolder::open(to_.path()), transports);
    receiver_->start();
  }

  SendResult send(const std::vector<std::string>& paths) {
    auto items = list_sources(paths, "stdin", [this](const std::string& w) { warnings_ += w; });
    EXPECT_TRUE(items) << (items ? "" : items.error());
    SenderOptions options;
    options.session_high = 1;
    options.session_low = ++sessions_;
    options.chunk_bytes = 4096;
    options.buffers = 6;
    options.now = [] { return driver::now(); };
    std::vector<Sender::Connection> connections;
    for (size_t i = 0; i < sender_side_.size(); ++i) {
      connections.push_back({sender_side_[i].get(),
                             MemoryTransport::join(*sender_side_[i], *receiver_side_[i])});
    }
    Sender sender(options, std::move(*items), connections);
    sender.start();
    if (!sender.wait_finished(seconds(60))) ADD_FAILURE() << "the transfer hangs";
    return sender.join();
  }

  std::shared_ptr<MemoryNetwork> network_ = std::make_shared<MemoryNetwork>(7);
  TemporaryFolder from_;
  TemporaryFolder to_;
  std::vector<std::unique_ptr<MemoryTransport>> receiver_side_;
  std::vector<std::unique_ptr<MemoryTransport>> sender_side_;
  std::unique_ptr<Receiver> receiver_;
  std::string warnings_;
  uint64_t sessions_ = 0;
};

TEST_F(Transfer, FileLargerThanAllSlots) {
  const std::string text = noise(300'001, 1);
  write_file(from_ / "big", text);
  ::chmod((from_ / "big").c_str(), 0640);
  start_receiver(Overwrite::kNever);
  const SendResult result = send({from_ / "big"});
  EXPECT_TRUE(result.complete) << result.text;
  EXPECT_EQ(result.bytes, text.size());
  EXPECT_TRUE(read_file(to_ / "big") == text);
  struct stat was {}, is {};
  ::stat((from_ / "big").c_str(), &was);
  ::stat((to_ / "big").c_str(), &is);
  EXPECT_EQ(is.st_mode & 0777, 0640u);
  EXPECT_EQ(is.st_mtim.tv_sec, was.st_mtim.tv_sec);
  EXPECT_EQ(is.st_mtim.tv_nsec, was.st_mtim.tv_nsec);
  EXPECT_EQ(names_in(to_.path()), std::vector<std::string>{"big"});
}

TEST_F(Transfer, SeveralLinksShareOneFile) {
  const std::string text = noise(1'000'000, 2);
  write_file(from_ / "big", text);
  start_receiver(Overwrite::kNever, 3);
  EXPECT_TRUE(send({from_ / "big"}).complete);
  EXPECT_TRUE(read_file(to_ / "big") == text);
}

TEST_F(Transfer, TreeWithOddNamesAndManySmallFiles) {
  const std::string root = from_ / "tree";
  for (int i = 0; i < 300; ++i) {
    write_file(root + "/many/" + std::to_string(i), noise(static_cast<size_t>(i) * 31, 3));
  }
  write_file(root + "/empty", "");
  write_file(root + "/with space/\xC3\xA4\xE2\x82\xAC \\ ' \" *?", "odd");
  write_file(root + "/-dash", "dash");
  write_file(root + "/" + std::string(255, 'x'), "long");
  write_file(root + "/bad\nname", "control");
  fs::create_directories(root + "/empty folder");
  fs::create_symlink("/etc/passwd", root + "/link");
  ::mkfifo((root + "/fifo").c_str(), 0600);
  start_receiver(Overwrite::kNever);
  const SendResult result = send({root});
  EXPECT_TRUE(result.complete) << result.text;
  for (int i = 0; i < 300; ++i) {
    const std::string name = "many/" + std::to_string(i);
    EXPECT_TRUE(read_file(to_ / ("tree/" + name)) == read_file(root + "/" + name)) << name;
  }
  EXPECT_EQ(read_file(to_ / "tree/with space/\xC3\xA4\xE2\x82\xAC \\ ' \" *?"), "odd");
  EXPECT_EQ(read_file(to_ / ("tree/" + std::string(255, 'x'))), "long");
  EXPECT_TRUE(fs::is_directory(to_ / "tree/empty folder"));
  EXPECT_TRUE(fs::is_regular_file(to_ / "tree/empty"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(to_ / "tree/link")));
  EXPECT_FALSE(fs::exists(to_ / "tree/fifo"));
  EXPECT_FALSE(fs::exists(to_ / "tree/bad\nname"));
  EXPECT_NE(warnings_.find("tree/link: symbolic links are not sent"), std::string::npos);
  EXPECT_NE(warnings_.find("bad\\x0aname: the name contains a control"), std::string::npos);
  EXPECT_NE(warnings_.find("tree/fifo: neither"), std::string::npos);
}

TEST_F(Transfer, OverwriteNeverKeepsTheOldFileAndSendsTheRest) {
  write_file(from_ / "a", "new");
  write_file(from_ / "b", "other");
  write_file(to_ / "a", "old");
  start_receiver(Overwrite::kNever);
  const SendResult result = send({from_ / "a", from_ / "b"});
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.stored, 1u);
  EXPECT_NE(result.items[0].text.find("it exists at the receiver"), std::string::npos);
  EXPECT_EQ(read_file(to_ / "a"), "old");
  EXPECT_EQ(read_file(to_ / "b"), "other");
}

TEST_F(Transfer, OverwriteAlwaysReplacesAFileAndALinkButNotWhatItPointsTo) {
  write_file(from_ / "a", "new");
  write_file(from_ / "b", "new b");
  write_file(to_ / "a", "old");
  write_file(to_ / "precious", "precious");
  fs::create_symlink(to_ / "precious", to_ / "b");
  start_receiver(Overwrite::kAlways);
  EXPECT_TRUE(send({from_ / "a", from_ / "b"}).complete);
  EXPECT_EQ(read_file(to_ / "a"), "new");
  EXPECT_EQ(read_file(to_ / "b"), "new b");
  EXPECT_FALSE(fs::is_symlink(to_ / "b"));
  EXPECT_EQ(read_file(to_ / "precious"), "precious");
}

TEST_F(Transfer, OverwriteRenameFindsAFreeName) {
  write_file(from_ / "a", "new");
  write_file(to_ / "a", "old");
  write_file(to_ / "a.1", "older");
  start_receiver(Overwrite::kRename);
  const SendResult result = send({from_ / "a"});
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(result.items[0].text, "a.2");
  EXPECT_EQ(read_file(to_ / "a"), "old");
  EXPECT_EQ(read_file(to_ / "a.2"), "new");
}

TEST_F(Transfer, LinkInTheTargetPathIsNotFollowed) {
  TemporaryFolder outside;
  write_file(from_ / "tree/a", "new");
  fs::create_symlink(outside.path(), to_ / "tree");
  start_receiver(Overwrite::kAlways);
  const SendResult result = send({from_ / "tree"});
  EXPECT_FALSE(result.complete);
  EXPECT_NE(result.items[1].text.find("symbolic links are not followed"), std::string::npos);
  EXPECT_TRUE(names_in(outside.path()).empty());
}

TEST_F(Transfer, FileThatChangesItsSizeIsNotStored) {
  write_file(from_ / "a", "0123456789");
  write_file(from_ / "b", "fine");
  start_receiver(Overwrite::kNever);
  auto items = *list_sources({from_ / "a", from_ / "b"}, "stdin", [](const std::string&) {});
  ASSERT_EQ(::truncate((from_ / "a").c_str(), 4), 0);
  SenderOptions options;
  options.chunk_bytes = 4096;
  options.now = [] { return driver::now(); };
  const Link link = MemoryTransport::join(*sender_side_[0], *receiver_side_[0]);
  Sender sender(options, items, {{sender_side_[0].get(), link}});
  sender.start();
  ASSERT_TRUE(sender.wait_finished(seconds(60)));
  const SendResult result = sender.join();
  EXPECT_FALSE(result.complete);
  EXPECT_NE(result.items[0].text.find("shrank"), std::string::npos) << result.items[0].text;
  EXPECT_TRUE(result.items[1].stored);
  EXPECT_EQ(names_in(to_.path()), std::vector<std::string>{"b"});
}

TEST_F(Transfer, CutLinkLeavesNoTemporaryFileAndNamesTheCause) {
  write_file(from_ / "fifo-source", "");
  start_receiver(Overwrite::kNever);
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const int saved = ::dup(STDIN_FILENO);
  ::dup2(pipe_ends[0], STDIN_FILENO);
  const std::string text = noise(10'000, 4);
  ASSERT_EQ(::write(pipe_ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  SenderOptions options;
  options.chunk_bytes = 4096;
  options.now = [] { return driver::now(); };
  auto items = *list_sources({"-"}, "input", [](const std::string&) {});
  const Link link = MemoryTransport::join(*sender_side_[0], *receiver_side_[0]);
  Sender sender(options, items, {{sender_side_[0].get(), link}});
  sender.start();
  while (receiver_->bytes() < 4096) std::this_thread::yield();
  EXPECT_EQ(names_in(to_.path()).size(), 1u);  // the temporary file
  sender_side_[0]->cut(link, "cable cut");
  ASSERT_TRUE(sender.wait_finished(seconds(60)));
  EXPECT_NE(sender.join().text.find("cable cut"), std::string::npos);
  receiver_->stop("end of test");
  receiver_->join();
  EXPECT_TRUE(names_in(to_.path()).empty());
  const auto results = receiver_->take_results();
  ASSERT_EQ(results.size(), 1u);
  EXPECT_FALSE(results[0].complete);
  EXPECT_NE(results[0].text.find("cable cut"), std::string::npos);
  ::dup2(saved, STDIN_FILENO);
  for (const int fd : {saved, pipe_ends[0], pipe_ends[1]}) ::close(fd);
}

TEST_F(Transfer, ReceiverThatStopsTellsTheSender) {
  write_file(from_ / "a", noise(2'000'000, 5));
  start_receiver(Overwrite::kNever);
  std::thread stopper([this] {
    while (receiver_->bytes() == 0) std::this_thread::yield();
    receiver_->stop("interrupted");
  });
  const SendResult result = send({from_ / "a"});
  stopper.join();
  receiver_->join();
  // The whole file may have come through before the stop; then nothing may be missing.
  if (!result.complete) {
    EXPECT_NE(result.text.find("interrupted"), std::string::npos) << result.text;
    EXPECT_TRUE(names_in(to_.path()).empty());
  } else {
    EXPECT_EQ(names_in(to_.path()), std::vector<std::string>{"a"});
  }
}

TEST_F(Transfer, ThingsThatCannotBeSent) {
  const auto quiet = [](const std::string&) {};
  write_file(from_ / "a", "x");
  fs::create_symlink(from_ / "a", from_ / "link");
  EXPECT_NE(list_sources({from_ / "none"}, "s", quiet).error().find("No such file"),
            std::string::npos);
  EXPECT_NE(list_sources({from_ / "link"}, "s", quiet).error().find("symbolic link"),
            std::string::npos);
  EXPECT_NE(list_sources({"/dev/null"}, "s", quiet).error().find("neither"), std::string::npos);
  EXPECT_NE(list_sources({"/"}, "s", quiet).error().find("no name"), std::string::npos);
  EXPECT_NE(list_sources({"-", "-"}, "s", quiet).error().find("only once"), std::string::npos);
  EXPECT_NE(list_sources({"-"}, "../s", quiet).error().find(".."), std::string::npos);
}

}  // namespace
}  // namespace metaroce::tool
