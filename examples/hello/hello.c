/* Two processes: the server lends memory, the client writes into it and says so.
 *
 *   hello server              prints "port N", then what arrived
 *   hello client HOST:PORT    writes a greeting into the server's memory
 */
#include <inttypes.h>
#include <metaroce/metaroce.h>
#include <stdio.h>
#include <string.h>

enum { kBytes = 1 << 20 };

/* What the server sends first: where to write. */
struct invitation {
  uint64_t address;
  uint32_t key;
  uint32_t length;
};

static char memory[kBytes];

static int failed(mr_context *context, const char *what, int status) {
  char text[512] = "";
  mr_last_error(context, text, sizeof text);
  fprintf(stderr, "hello: %s: %s: %s\n", what, mr_status_text(status), text);
  mr_context_close(context);
  return 1;
}

/* Waits for the next completion; its status. */
static int complete(mr_context *context, mr_completion *done) {
  for (;;) {
    size_t got = 0;
    const mr_status status = mr_poll(context, done, 1, sizeof *done, &got);
    if (status != MR_OK) return status;
    if (got == 1) return (int)done->status;
    mr_event event = {.size = sizeof event};
    while (mr_next_event(context, &event) == MR_OK) {
      if (event.kind == MR_EVENT_LOST) fprintf(stderr, "hello: %s\n", event.text);
    }
    mr_context_wait(context, -1);
  }
}

static int serve(mr_context *context) {
  printf("port %u\n", mr_context_port(context));
  fflush(stdout);
  mr_connection connection;
  mr_status status = mr_accept(context, -1, &connection);
  if (status != MR_OK) return failed(context, "accept", status);
  mr_stream_open(context, connection, 0, NULL);
  mr_region_info region = {.size = sizeof region};
  status = mr_region_register(context, memory, sizeof memory, MR_REMOTE_WRITE, &region);
  if (status != MR_OK) return failed(context, "register", status);
  const struct invitation invitation = {region.address, region.key, sizeof memory};
  const mr_receive notice = {.connection = connection};
  const mr_work send = {.connection = connection,
                        .operation = MR_SEND,
                        .memory = &invitation,
                        .length = sizeof invitation};
  mr_post_receive(context, &notice, 1, sizeof notice, NULL);
  mr_post(context, &send, 1, sizeof send, NULL);
  mr_completion done = {0};
  do {
    status = (mr_status)complete(context, &done);
    if (status != MR_OK) return failed(context, "work", status);
  } while (done.operation != MR_RECEIVE);
  printf("%" PRIu32 " bytes: %s\n", done.immediate, memory);
  /* The client closes once its write has completed; see that out. */
  mr_event event = {.size = sizeof event};
  while (event.kind != MR_EVENT_CLOSED && event.kind != MR_EVENT_LOST) {
    if (mr_next_event(context, &event) != MR_OK) mr_context_wait(context, -1);
  }
  for (size_t i = 64; i < sizeof memory; ++i) {
    if (memory[i] != (char)i) return failed(context, "the memory is not what was sent", MR_OK);
  }
  mr_context_close(context);
  return 0;
}

static int greet(mr_context *context, const char *server) {
  const char *const peers[] = {server};
  const mr_connect_options options = {.size = sizeof options, .peers = peers, .peer_count = 1};
  mr_connection connection;
  mr_status status = mr_connect(context, &options, -1, &connection);
  if (status != MR_OK) return failed(context, "connect", status);
  mr_stream_open(context, connection, 0, NULL);
  struct invitation invitation;
  const mr_receive receive = {
      .connection = connection, .memory = &invitation, .length = sizeof invitation};
  mr_post_receive(context, &receive, 1, sizeof receive, NULL);
  mr_completion done = {0};
  status = (mr_status)complete(context, &done);
  if (status != MR_OK) return failed(context, "invitation", status);
  for (size_t i = 64; i < sizeof memory; ++i) memory[i] = (char)i;
  strcpy(memory, "hello from another process");
  const mr_work write = {.connection = connection,
                         .operation = MR_WRITE_IMM,
                         .memory = memory,
                         .length = invitation.length,
                         .remote_address = invitation.address,
                         .remote_key = invitation.key,
                         .immediate = invitation.length};
  mr_post(context, &write, 1, sizeof write, NULL);
  status = (mr_status)complete(context, &done);
  if (status != MR_OK) return failed(context, "write", status);
  mr_close(context, connection, 0);
  mr_event event = {.size = sizeof event};
  while (event.kind != MR_EVENT_CLOSED && event.kind != MR_EVENT_LOST) {
    if (mr_next_event(context, &event) != MR_OK) mr_context_wait(context, -1);
  }
  mr_context_close(context);
  return 0;
}

int main(int argc, char **argv) {
  const int server = argc == 2 && strcmp(argv[1], "server") == 0;
  if (!server && !(argc == 3 && strcmp(argv[1], "client") == 0)) {
    fprintf(stderr, "usage: hello server | hello client HOST:PORT\n");
    return 2;
  }
  const mr_context_options options = {.size = sizeof options,
                                      .flags = server ? MR_CONTEXT_ACCEPT : 0};
  mr_context *context;
  const mr_status status = mr_context_open(&options, &context);
  if (status != MR_OK) return failed(NULL, "open", status);
  return server ? serve(context) : greet(context, argv[2]);
}
