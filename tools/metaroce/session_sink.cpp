#include "session_sink.h"

#include "file_names.h"

namespace metaroce::tool {

SessionSink::SessionSink(const TargetFolder& folder, Overwrite overwrite, std::string tag,
                         size_t max_chunks, Reply reply, ItemDone item_done)
    : folder_(folder),
      overwrite_(overwrite),
      tag_(std::move(tag)),
      max_chunks_(max_chunks),
      reply_(std::move(reply)),
      item_done_(std::move(item_done)) {}

std::string SessionSink::offer(const LinkAddress& from, const Offer& offer) {
  control_ = from;
  if (items_.size() >= kMaxOpenItems) return "too many open offers";
  if (items_.count(offer.item) != 0) return "the same item was offered twice";
  if (offer.kind == ItemKind::kDirectory) {
    std::string why = check_name(offer.name);
    if (why.empty()) {
      const auto made = folder_.make_folder(offer.name);
      if (!made) why = made.error();
    }
    if (!why.empty()) why = "refused \"" + printable(offer.name) + "\": " + why;
    reply_(control_, Answer{offer.item, why.empty(), why});
    reply_(control_, Verdict{offer.item, why.empty(), why.empty() ? offer.name : why});
    if (!why.empty()) note({offer.name, 0, false, {}, why});
    return {};
  }
  auto file = IncomingFile::create(folder_, offer, overwrite_,
                                   tag_ + "-" + std::to_string(offer.item));
  if (!file) {
    reply_(control_, Answer{offer.item, false, file.error()});
    reply_(control_, Verdict{offer.item, false, file.error()});
    note({offer.name, 0, false, {}, file.error()});
    return {};
  }
  Item item;
  item.offer = offer;
  item.file = std::move(*file);
  items_.emplace(offer.item, std::move(item));
  reply_(control_, Answer{offer.item, true, {}});
  return {};
}

std::string SessionSink::data(const Data& data, Chunk chunk) {
  const auto found = items_.find(data.item);
  // Data of an item that failed a moment ago is still on its way: only its slot matters.
  if (found == items_.end() || !found->second.file) {
    release(chunk);
    if (found != items_.end()) finish(data.item);
    return {};
  }
  Item& item = found->second;
  if (chunk.bytes.empty()) return "data without bytes";
  if (data.offset < item.file->written()) return "data that repeats an offset";
  if (data.offset + chunk.bytes.size() < data.offset) return "data beyond the end of all files";
  if (item.offer.size != kUnknownSize &&
      data.offset + chunk.bytes.size() > item.offer.size) {
    return "more data than was offered";
  }
  if (chunks_ >= max_chunks_) return "more data than slots";
  if (!item.waiting.emplace(data.offset, std::move(chunk)).second) {
    return "data that repeats an offset";
  }
  ++chunks_;
  append_ready(item);
  finish(data.item);
  return {};
}

void SessionSink::append_ready(Item& item) {
  while (item.file && !item.waiting.empty() &&
         item.waiting.begin()->first == item.file->written()) {
    const Chunk chunk = std::move(item.waiting.begin()->second);
    item.waiting.erase(item.waiting.begin());
    --chunks_;
    const auto appended = item.file->append(chunk.bytes);
    release(chunk);
    if (!appended) {
      fail(item, appended.error());
      return;
    }
    appended_ += chunk.bytes.size();
  }
}

void SessionSink::release(const Chunk& chunk) { reply_(chunk.from, Free{chunk.slot}); }

// The sender hears at once; the entry stays until its DONE or CANCEL so that late data is known.
void SessionSink::fail(Item& item, const std::string& why) {
  item.file.reset();
  for (const auto& [offset, chunk] : item.waiting) release(chunk);
  chunks_ -= item.waiting.size();
  item.waiting.clear();
  reply_(control_, Verdict{item.offer.item, false, why});
  note({item.offer.name, 0, false, {}, why});
}

std::string SessionSink::done(const Done& done) {
  const auto found = items_.find(done.item);
  if (found == items_.end()) return "the end of an item that is not open";
  if (found->second.has_done) return "the end of an item twice";
  found->second.has_done = true;
  found->second.done = done;
  finish(done.item);
  return {};
}

std::string SessionSink::cancel(const Cancel& cancel) {
  const auto found = items_.find(cancel.item);
  if (found == items_.end()) return "the cancellation of an item that is not open";
  if (found->second.file) fail(found->second, "the sender gave up: " + printable(cancel.text));
  items_.erase(found);
  return {};
}

void SessionSink::finish(uint32_t id) {
  Item& item = items_.at(id);
  if (!item.has_done) return;
  if (!item.file) {
    items_.erase(id);
    return;
  }
  // The rest of the data comes on other streams and may be behind.
  if (item.file->written() < item.done.size) return;
  ReceivedItem received{item.offer.name, item.done.size, true, item.done.sha256, {}};
  const auto name = item.file->finish(item.done);
  if (!name) {
    fail(item, name.error());
  } else {
    received.name = *name;
    reply_(control_, Verdict{id, true, *name});
    note(std::move(received));
  }
  items_.erase(id);
}

std::string SessionSink::bye(const LinkAddress& from, const Bye&) {
  if (!items_.empty()) return "a good-bye with open items";
  reply_(from, Bye{result_.stored, result_.bytes});
  ended_ = true;
  result_.complete = result_.failed == 0;
  if (!result_.complete) {
    result_.text = std::to_string(result_.failed) + " of " +
                   std::to_string(result_.failed + result_.stored) + " items were not stored";
  }
  return {};
}

void SessionSink::end(const std::string& why, Time now) {
  result_.end = now;
  if (ended_) return;
  ended_ = true;
  result_.text = why;
  for (auto& [id, item] : items_) {
    if (item.file) note({item.offer.name, item.file->written(), false, {}, why});
  }
  items_.clear();
  chunks_ = 0;
}

void SessionSink::note(ReceivedItem item) {
  if (item.stored) {
    ++result_.stored;
    result_.bytes += item.bytes;
  } else {
    ++result_.failed;
  }
  item_done_(item);
  if (result_.items.size() < kKeptItems) result_.items.push_back(std::move(item));
}

}  // namespace metaroce::tool
