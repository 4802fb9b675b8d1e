/* The public header from C11 with every warning, and a round through the library: two contexts,
 * one thread, one write over loopback. */
#include <metaroce/metaroce.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                            \
  do {                                                              \
    if (!(condition)) {                                             \
      fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition); \
      return 1;                                                     \
    }                                                               \
  } while (0)

/* Layout is part of the interface: these may grow at the end and never move. */
_Static_assert(offsetof(mr_work, memory) == 16, "mr_work");
_Static_assert(offsetof(mr_work, immediate) == 52, "mr_work");
_Static_assert(offsetof(mr_work, operand) == 56, "mr_work");
_Static_assert(offsetof(mr_completion, old_value) == 32, "mr_completion");
_Static_assert(offsetof(mr_receive, segments) == 40, "mr_receive");
_Static_assert(offsetof(mr_event, peer) == 40, "mr_event");
_Static_assert(sizeof(mr_region_info) == 40, "mr_region_info");

static char inbox[32];

static int drive(mr_context *a, mr_context *b, mr_completion *done) {
  size_t got = 0;
  while (got == 0) {
    mr_event event = {.size = sizeof event};
    while (mr_next_event(a, &event) == MR_OK || mr_next_event(b, &event) == MR_OK) continue;
    CHECK(mr_poll(b, NULL, 0, sizeof *done, NULL) == MR_OK);
    CHECK(mr_poll(a, done, 1, sizeof *done, &got) == MR_OK);
  }
  return 0;
}

int main(void) {
  CHECK(mr_version_number() == MR_HEADER_VERSION);
  CHECK(strlen(mr_version()) >= 5);
  const char *const addresses[] = {"127.0.0.1"};
  const mr_context_options options = {.size = sizeof options,
                                      .flags = MR_CONTEXT_ACCEPT,
                                      .addresses = addresses,
                                      .address_count = 1};
  mr_context *a = NULL;
  mr_context *b = NULL;
  CHECK(mr_context_open(&options, &a) == MR_OK);
  CHECK(mr_context_open(&options, &b) == MR_OK);
  char peer[64];
  CHECK(mr_context_address(b, 0, peer, sizeof peer) == MR_OK);
  const char *const peers[] = {peer};
  const mr_connect_options to = {.size = sizeof to, .peers = peers, .peer_count = 1};
  mr_connection connection = 0;
  CHECK(mr_connect_start(a, &to, &connection) == MR_OK);
  CHECK(mr_stream_open(a, connection, 3, NULL) == MR_OK);
  mr_region_info region = {.size = sizeof region};
  CHECK(mr_region_register(b, inbox, sizeof inbox, MR_REMOTE_WRITE, &region) == MR_OK);
  const mr_work work = {.id = 42,
                        .connection = connection,
                        .stream = 3,
                        .operation = MR_WRITE,
                        .memory = "hello",
                        .length = 6,
                        .remote_address = region.address,
                        .remote_key = region.key};
  size_t taken = 0;
  CHECK(mr_post(a, &work, 1, sizeof work, &taken) == MR_OK && taken == 1);
  mr_completion done;
  CHECK(drive(a, b, &done) == 0);
  CHECK(done.status == MR_OK && done.id == 42 && done.stream == 3);
  CHECK(strcmp(inbox, "hello") == 0);
  CHECK(mr_context_close(a) == MR_OK);
  CHECK(mr_context_close(b) == MR_OK);
  return 0;
}
