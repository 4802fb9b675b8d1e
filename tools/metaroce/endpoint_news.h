// What an endpoint has to tell, in the order in which it makes sense.
#pragma once

#include <span>
#include <vector>

#include "api/endpoint.h"

namespace metaroce::tool {

/// Polls once and hands over what happened: who came before the first message of his connection,
/// all other events after the last. `on_completions` is called once, with a span that may be empty.
/// Returns the number of completions.
template <class OnEvent, class OnCompletions>
size_t take_news(api::Endpoint& endpoint, OnEvent&& on_event, OnCompletions&& on_completions) {
  api::Completion done[64];
  const size_t n = endpoint.poll(done);
  api::ConnectionEvent event;
  std::vector<api::ConnectionEvent> ends;
  while (endpoint.next_event(event)) {
    if (event.kind == api::ConnectionEventKind::kAccepted) {
      on_event(event);
    } else {
      ends.push_back(event);
    }
  }
  on_completions(std::span<const api::Completion>(done, n));
  for (const api::ConnectionEvent& end : ends) on_event(end);
  return n;
}

}  // namespace metaroce::tool
