// Shared receive queues of the C interface.
#include <fmt/core.h>

#include "api/native/context.h"

using metaroce::Status;
using metaroce::api::native::Context;
using metaroce::api::native::guarded;
namespace native = metaroce::api::native;

extern "C" {

mr_status mr_queue_create(mr_context* context, mr_queue* queue) {
  if (queue != nullptr) *queue = 0;
  return guarded(context, [&](Context& c) {
    if (queue == nullptr) return c.fail(MR_INVALID, "queue is NULL");
    const auto id = c.endpoint().create_shared_queue();
    if (!id) {
      return c.fail(MR_FULL, fmt::format("all {} shared queues are in use; raise the setting "
                                         "max_shared_queues",
                                         c.settings().max_shared_queues));
    }
    *queue = *id;
    return MR_OK;
  });
}

mr_status mr_queue_destroy(mr_context* context, mr_queue queue) {
  return guarded(context, [&](Context& c) {
    const uint32_t posted = c.posted_to(queue);
    const uint32_t waiting = c.endpoint().shared_queue_length(queue);
    if (posted > waiting) {  // a connection that is gone had them
      return c.fail(MR_BUSY, fmt::format("{} receives of queue {} are in use or have ended; poll "
                                         "their completions first",
                                         posted - waiting, queue));
    }
    const Status status = c.endpoint().destroy_shared_queue(queue);
    if (status == Status::kFull) {
      return c.fail(MR_BUSY, fmt::format("streams of living connections take their receives from "
                                         "queue {}",
                                         queue));
    }
    if (status != Status::kOk) {
      return c.fail(MR_UNKNOWN_HANDLE, fmt::format("there is no queue {}", queue));
    }
    c.disown_queue(queue);
    return MR_OK;
  });
}

mr_status mr_queue_arm(mr_context* context, mr_queue queue, uint32_t count) {
  return guarded(context, [&](Context& c) {
    if (c.endpoint().arm_shared_queue(queue, count) == Status::kOk) return MR_OK;
    return c.fail(MR_UNKNOWN_HANDLE, fmt::format("there is no queue {}", queue));
  });
}

}  // extern "C"
