/* softmetaroce: messages and remote memory access over many network paths, in user space.
 *
 * C11. The manual pages describe every call (start with softmetaroce(3)); this header repeats what
 * decides how a call may be used.
 *
 * Compatibility: a program compiled with an older or newer header runs with this library. Single
 * structs begin with `size`, which the caller sets to sizeof; array functions take the size of one
 * element in `each`. A smaller struct is one from an older header: fields it lacks count as 0 on
 * the way in and are not written on the way out. A larger one is from a newer header: its unknown
 * fields must be 0 on the way in (else MR_INVALID) and are set to 0 on the way out. Values of enums
 * never change; new ones are added at the end.
 *
 * Threads. A context has one of two modes:
 *   one thread       (default) the context and all that belongs to it are used by one thread at a
 *                    time; only mr_context_wake may be called from any thread at any time.
 *   progress thread  (MR_CONTEXT_PROGRESS_THREAD) the library moves packets in a thread of its own
 *                    and every call but mr_context_close may be made from any thread: a lock
 *                    guards the context. mr_context_close comes last.
 * Calls without a context may be made from any thread in either mode. Each call below says [any],
 * [context] (as the mode says) or [last].
 *
 * Signals: only mr_context_wake may be called from a signal handler. Blocking calls go on after a
 * handler returned; let the handler call mr_context_wake to end mr_context_wait. The progress
 * thread blocks all signals.
 *
 * fork: a child must not use its parent's contexts. Every call with such a context returns
 * MR_FORKED and does nothing, mr_context_close too. The child may open contexts of its own. All
 * descriptors are close-on-exec.
 */
#ifndef METAROCE_METAROCE_H
#define METAROCE_METAROCE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MR_API __attribute__((visibility("default")))
#else
#define MR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* 0xMMmmpp: major, minor, patch of this header. */
#define MR_HEADER_VERSION 0x000100u

/* ---- status ---------------------------------------------------------------------------------- */

/* How calls and posted work end. mr_status_text and mr_status_check say more; the same numbers are
 * the vendor error of other interfaces to this transport. */
typedef enum mr_status {
  MR_OK = 0,
  MR_FULL = 1,           /* queue or table is full: poll, then try again */
  MR_INVALID = 2,        /* an argument is out of range */
  MR_UNKNOWN_HANDLE = 3, /* connection, stream or region does not exist (any more) */
  MR_NOT_CONNECTED = 4,  /* the connection is closing or gone */
  MR_UNREACHABLE = 5,    /* the network says there is no way */
  MR_UNRESPONSIVE = 6,   /* the peer stopped answering, or never did */
  MR_REFUSED = 7,        /* the peer's host says that nothing listens there */
  MR_MISMATCH = 8,       /* no common version or parameters */
  MR_NOT_READY = 9,      /* the peer posted no receive in time */
  MR_ACCESS = 10,        /* key, bounds or rights do not allow it */
  MR_LENGTH = 11,        /* message longer than the receive buffer */
  MR_UNSUPPORTED = 12,
  MR_PEER_FAILED = 13,   /* the peer reported an error of its own */
  MR_FLUSHED = 14,       /* ended because an earlier request failed or the connection closed */
  MR_CLOSED = 15,        /* the connection was closed */
  MR_PEER_GONE = 16,     /* the peer's process has ended or was restarted */
  MR_NOT_TRUSTED = 17,   /* one side insists on keys that the other has not, or has others */
  /* 18 to 63: more causes of the transport */
  MR_TIMEOUT = 64,       /* the time given to the call is over */
  MR_EMPTY = 65,         /* there is nothing to fetch */
  MR_BUSY = 66,          /* posted work still needs it */
  MR_WOKEN = 67,         /* mr_context_wake was called */
  MR_FORKED = 68,        /* the context belongs to the parent process */
  MR_NO_MEMORY = 69,     /* the process has no memory left */
  MR_SYSTEM = 70         /* a system call failed, see mr_last_error */
} mr_status;

/* [any] Static strings, never NULL: the name ("MR_ACCESS"), the meaning, and the first thing to
 * check. For a number that is no status they say so. */
MR_API const char *mr_status_name(int status);
MR_API const char *mr_status_text(int status);
MR_API const char *mr_status_check(int status);

/* [any] "0.1.0" and 0xMMmmpp of the library that is loaded. */
MR_API const char *mr_version(void);
MR_API uint32_t mr_version_number(void);

/* ---- context --------------------------------------------------------------------------------- */

typedef struct mr_context mr_context;

enum {
  MR_CONTEXT_ACCEPT = 0x1,          /* peers may connect */
  MR_CONTEXT_PROGRESS_THREAD = 0x2, /* packets are moved by a thread of the library */
  MR_CONTEXT_NO_ENVIRONMENT = 0x4   /* METAROCE_<SETTING> variables are not read */
};

typedef enum mr_security {
  MR_SECURITY_DEFAULT = 0,
  MR_SECURITY_OFFERED = 1, /* plain connections too, with peers that have no keys */
  MR_SECURITY_REQUIRED = 2
} mr_security;

/* All zero but `size` is a good start: one plane on whatever interface, a free port. */
typedef struct mr_context_options {
  size_t size;
  uint32_t flags;
  uint16_t port;                /* UDP service port on every plane; 0: a free one */
  uint16_t reserved;
  const char *const *addresses; /* one numeric local address a plane, at most 16 */
  size_t address_count;         /* 0: one plane on whatever interface */
  const char *const *settings;  /* "name=value"; mr_setting_get lists them */
  size_t setting_count;
  uint32_t receive_buffer;      /* bytes asked of the system for each plane; 0: 8 MiB */
  uint32_t send_buffer;         /* the same for sending; 0: 1 MiB */
  int64_t spin_ns;              /* look for work this long before blocking; 0: 50 us, < 0: never */
  uint64_t seed;                /* of ids and ports, for tests; 0: from the system. Not with keys */
  const char *faults;           /* faults to inject, as `metaroce send --fault`; NULL: none */
  uint32_t security;            /* mr_security; 0: required when keys are given */
  uint32_t peer_key_count;
  const char *psk_file;         /* pre-shared keys, mode 0600 (`metaroce keygen --psk`), or NULL */
  const char *key_file;         /* own X25519 keys, mode 0600 (`... --x25519`), or NULL */
  const char *const *peer_keys; /* public keys that are trusted: files, or 64 hex digits */
  const char *identity;         /* name of the own key that mr_connect uses; NULL: the first */
  const char *peer_key_name;    /* name of the key that peers of mr_connect must have; NULL: any */
  const char *suites;           /* "AES-128-GCM,..." in order of preference; NULL: all */
} mr_context_options;

/* [any] Opens sockets and allocates; NULL options: all defaults. *context is NULL on errors. */
MR_API mr_status mr_context_open(const mr_context_options *options, mr_context **context);
/* [last] Connections end at once (peers find out by themselves unless mr_close came before), posted
 * work is dropped without completions, regions are gone. NULL is allowed. */
MR_API mr_status mr_context_close(mr_context *context);

/* [context] The service port; 0 on errors. */
MR_API uint16_t mr_context_port(mr_context *context);
/* [context] Local address of a plane as "10.0.0.1:28672". Strings are cut to fit and always end in
 * 0; 64 bytes hold any. MR_INVALID: there is no such plane. */
MR_API mr_status mr_context_address(mr_context *context, uint32_t plane, char *text, size_t size);
/* [context] One line when the system granted smaller buffers than asked for, else "". */
MR_API mr_status mr_context_warning(mr_context *context, char *text, size_t size);
/* [context; with NULL: any] One line about the last call that failed on this context: what, with
 * which value, why, and what to do. With NULL: about the last failed mr_context_open of this
 * thread. 512 bytes hold most. */
MR_API mr_status mr_last_error(mr_context *context, char *text, size_t size);

/* ---- waiting --------------------------------------------------------------------------------- */

/* [context] Moves packets until there is a completion or an event to fetch (MR_OK; fetch both, or
 * the next call returns at once; MR_EVENT_PATH alone does not count), until
 * mr_context_wake (MR_WOKEN) or for `timeout_ns` (MR_TIMEOUT; < 0: for ever). */
MR_API mr_status mr_context_wait(mr_context *context, int64_t timeout_ns);
/* [any thread, signal handler] Ends mr_context_wait and makes the descriptor readable. A wake that
 * nobody waits for is kept for the next wait or mr_poll. */
MR_API mr_status mr_context_wake(mr_context *context);
/* [context] A descriptor for poll, select and epoll; never read or close it; -1 on errors. It tells
 * something only after mr_context_arm. */
MR_API int mr_context_fd(mr_context *context);
/* [context] From here on the descriptor becomes readable when a completion or event can be fetched,
 * when the library has to be driven by mr_poll, or after mr_context_wake; at once if any of this
 * is so already, so nothing is lost between the last mr_poll and this call. The loop is:
 *     mr_context_arm; poll(fd); mr_poll until it gives 0; mr_next_event until MR_EMPTY; again.
 * Those who know ibv_req_notify_cq may also poll once more after arming; they need not. */
MR_API mr_status mr_context_arm(mr_context *context);

/* ---- memory ---------------------------------------------------------------------------------- */

typedef uint64_t mr_region; /* never 0 for a real one */

enum {
  MR_REMOTE_WRITE = 0x1,
  MR_REMOTE_READ = 0x2,
  MR_REMOTE_ATOMIC = 0x4,
  MR_REMOTE_INVALIDATE = 0x8 /* a peer may end the key with MR_SEND_INV */
};

typedef struct mr_region_info {
  size_t size;
  mr_region region;
  uint64_t address; /* what peers name as the address of its first byte */
  uint32_t key;     /* what peers need to reach it */
  uint32_t rights;
  uint64_t length;
} mr_region_info;

/* [context] Lets peers reach `length` bytes with `rights` (0: none, for local use only). Touches no
 * page, locks no memory, and costs the same for every length. MR_FULL: setting max_regions. */
MR_API mr_status mr_region_register(mr_context *context, void *memory, size_t length,
                                    uint32_t rights, mr_region_info *info);
/* [context] Afterwards the library touches the memory no more and the key is void: what peers still
 * write there is refused at their end with MR_ACCESS. MR_BUSY, and nothing has changed, while work
 * that names the region (mr_work.region, mr_receive.region) is posted and its completion not yet
 * polled. */
MR_API mr_status mr_region_deregister(mr_context *context, mr_region region);
/* [context] A key of its own for `length` bytes from `offset` of a region, with rights of its own,
 * for connections of one domain (mr_connection_set_domain; 0: for all). mr_region_deregister closes
 * it; the region stays MR_BUSY until its windows are closed. */
MR_API mr_status mr_window_open(mr_context *context, mr_region region, uint64_t offset,
                                uint64_t length, uint32_t rights, uint32_t domain,
                                mr_region_info *info);

/* ---- connections ----------------------------------------------------------------------------- */

typedef uint32_t mr_connection; /* never 0 for a real one; a handle is not used again soon */

typedef struct mr_connect_options {
  size_t size;
  const char *const *peers; /* "host", "host:port" or "[v6]:port"; [0] first, [i] for plane i */
  size_t peer_count;        /* at most 16 */
  uint16_t port;            /* for peers without one; 0: 28672 */
  uint16_t reserved;
  uint32_t reserved2;
  const char *identity;      /* name of the own key; NULL: as the context, "": the first */
  const char *peer_key_name; /* name of the key that the peer must have; NULL: as the context,
                                "": any that is trusted */
} mr_connect_options;

/* [context] Asks a peer; MR_EVENT_CONNECTED or MR_EVENT_FAILED follows. Names are looked up, which
 * may block. Work may be posted at once; it goes out when the connection is open. */
MR_API mr_status mr_connect_start(mr_context *context, const mr_connect_options *options,
                                  mr_connection *connection);
/* [context] The same, and waits: MR_OK, or why not. Completions and events of other connections
 * stay where they are. < 0: as long as the setting connect_timeout allows. */
MR_API mr_status mr_connect(mr_context *context, const mr_connect_options *options,
                            int64_t timeout_ns, mr_connection *connection);
/* [context] Waits for a peer (MR_CONTEXT_ACCEPT); takes its MR_EVENT_ACCEPTED. MR_TIMEOUT. */
MR_API mr_status mr_accept(mr_context *context, int64_t timeout_ns, mr_connection *connection);
/* [context] Ends what is posted with MR_CLOSED and MR_FLUSHED and tells the peer, with `code`.
 * MR_EVENT_CLOSED follows once the peer knows; poll until then. Wait for completions first when
 * what is posted matters. */
MR_API mr_status mr_close(mr_context *context, mr_connection connection, uint32_t code);

/* [context] The same, but the handle is gone at once: no completions and no event follow, and what
 * was posted is the caller's again. The peer is told as long as the context lives and is driven.
 * Receives of a shared queue belong to no connection: those in use end with MR_FLUSHED. */
MR_API mr_status mr_abort(mr_context *context, mr_connection connection, uint32_t code);

/* [context] The group whose windows the peer of this connection may use; 0 at first. */
MR_API mr_status mr_connection_set_domain(mr_context *context, mr_connection connection,
                                          uint32_t domain);

/* ---- streams --------------------------------------------------------------------------------- */

#define MR_ANY_STREAM 0xFFFFFFFFu

/* [context] Streams are ordered sequences of messages and have the same number at both ends, each
 * of which opens it for itself. `wanted` is 0 to 65535, or MR_ANY_STREAM for the lowest that was
 * never open at this end. A number serves once in the life of a connection. */
MR_API mr_status mr_stream_open(mr_context *context, mr_connection connection, uint32_t wanted,
                                uint16_t *stream);
/* [context] MR_BUSY while something is posted on it whose completion was not yet polled. */
MR_API mr_status mr_stream_close(mr_context *context, mr_connection connection, uint16_t stream);

#define MR_RETRY_FOR_EVER 7

typedef struct mr_stream_options {
  size_t size;
  uint32_t rnr_retry;    /* how often a Send that finds no receive is tried again; 7: for ever */
  uint32_t in_order;     /* 1: bytes become visible in the order in which they were sent; both ends
                          * set it. It costs throughput: one run of packets a round trip. With 0
                          * nothing may be concluded from the last byte of a buffer. */
  uint32_t shared_queue; /* mr_queue that receives come from; 0: they are posted to it */
  uint32_t reserved;
} mr_stream_options;

/* [context] Before anything is posted on the stream. MR_INVALID: there is something. */
MR_API mr_status mr_stream_set(mr_context *context, mr_connection connection, uint16_t stream,
                               const mr_stream_options *options);
/* [context] Ends both directions of a stream at once: what is posted here ends with MR_FLUSHED, and
 * so do the receives at the peer; of its requests the first that is refused ends with
 * MR_PEER_FAILED, those behind it with MR_FLUSHED. Other streams go on. The number does not serve
 * again. MR_FULL: no stream record is left to tell the peer with (setting max_streams). */
MR_API mr_status mr_stream_reset(mr_context *context, mr_connection connection, uint16_t stream);
/* [context] Takes no more work (mr_post: MR_CLOSED); once all of it is done the peer's receives end
 * with MR_FLUSHED. MR_FULL as above. */
MR_API mr_status mr_stream_drain(mr_context *context, mr_connection connection, uint16_t stream);

typedef uint32_t mr_queue; /* receives for streams of several connections; never 0 for a real one */

/* [context] MR_FULL: setting max_shared_queues. */
MR_API mr_status mr_queue_create(mr_context *context, mr_queue *queue);
/* [context] What is posted to it is the caller's again, without completions. MR_BUSY while streams
 * use it. */
MR_API mr_status mr_queue_destroy(mr_context *context, mr_queue queue);
/* [context] MR_EVENT_QUEUE_LOW follows once fewer than `count` receives are left; 0: never. */
MR_API mr_status mr_queue_arm(mr_context *context, mr_queue queue, uint32_t count);

/* ---- work ------------------------------------------------------------------------------------ */

typedef enum mr_operation {
  MR_WRITE = 0,      /* into the peer's region */
  MR_WRITE_IMM = 1,  /* the same, and consumes a receive there, which gets the immediate value */
  MR_SEND = 2,       /* into the peer's next receive of the stream */
  MR_SEND_IMM = 3,   /* the same with an immediate value */
  MR_RECEIVE = 4,    /* in completions only */
  MR_SEND_INV = 5,   /* a Send that ends a key of the peer, `immediate` */
  MR_READ = 6,       /* from the peer's region into `memory` */
  MR_FETCH_ADD = 7,  /* adds `operand` to 8 bytes of the peer; `memory` gets the old value */
  MR_COMPARE_SWAP = 8 /* writes `swap` there if they were `operand`; the same */
} mr_operation;

enum {
  MR_WORK_SOLICITED = 0x1,
  MR_WORK_FENCE = 0x2,      /* starts when the Reads and atomics before it on the stream are done */
  MR_WORK_UNORDERED = 0x4,  /* the peer need not wait for the messages before it */
  MR_WORK_COPIED = 0x8,     /* `memory` is the caller's again at once; at most 256 bytes */
  MR_WORK_UNSIGNALLED = 0x10 /* no completion unless it fails */
};

#define MR_MAX_SEGMENTS 16
#define MR_MAX_COPIED 256

typedef struct mr_segment {
  void *memory;
  uint64_t length;
  mr_region region; /* that holds it; 0: not registered */
} mr_segment;

/* `memory` must stay as it is until the completion was polled. */
typedef struct mr_work {
  uint64_t id; /* comes back in the completion */
  mr_connection connection;
  uint16_t stream;
  uint8_t operation; /* mr_operation */
  uint8_t flags;     /* MR_WORK_... */
  const void *memory;
  uint64_t length;   /* 0 to 2^31 */
  mr_region region;  /* that holds `memory`; 0: not registered, then nothing guards it */
  uint64_t remote_address;
  uint32_t remote_key;
  uint32_t immediate;
  uint64_t operand;           /* of atomics */
  uint64_t swap;
  const mr_segment *segments; /* not NULL: stand for memory, length and region */
  uint32_t segment_count;     /* at most MR_MAX_SEGMENTS */
  uint32_t reserved;
} mr_work;

typedef struct mr_receive {
  uint64_t id;
  mr_connection connection;
  uint16_t stream;
  uint16_t reserved;
  void *memory; /* the library's until the completion was polled */
  uint64_t length;
  mr_region region; /* as in mr_work */
  const mr_segment *segments;
  uint32_t segment_count;
  mr_queue queue;   /* not 0: connection and stream mean nothing */
} mr_receive;

enum {
  MR_COMPLETION_IMMEDIATE = 0x1,
  MR_COMPLETION_SOLICITED = 0x2,
  MR_COMPLETION_INVALIDATED = 0x4 /* `immediate` is the key that the peer ended */
};

typedef struct mr_completion {
  uint64_t id;
  mr_connection connection;
  uint16_t stream;
  uint8_t operation; /* mr_operation */
  uint8_t flags;     /* MR_COMPLETION_... */
  uint64_t bytes;    /* length of the message; of a receive, bytes placed */
  uint32_t status;   /* mr_status */
  uint32_t immediate;
  uint64_t old_value; /* of an atomic, what stood there before */
} mr_completion;

/* [context] Take as many as possible; *taken of them, in order. The status says why the next one
 * was not taken; MR_OK: all were. `each` is sizeof(mr_work), sizeof(mr_receive). Each request taken
 * gives one completion unless it says otherwise. What is sent completes in posting order per
 * stream; receives in the order of the messages, but for those the peer sent MR_WORK_UNORDERED. */
MR_API mr_status mr_post(mr_context *context, const mr_work *work, size_t count, size_t each,
                         size_t *taken);
MR_API mr_status mr_post_receive(mr_context *context, const mr_receive *receives, size_t count,
                                 size_t each, size_t *taken);
/* [context] Moves packets without blocking and fetches up to `count` completions, *got of them. */
MR_API mr_status mr_poll(mr_context *context, mr_completion *completions, size_t count,
                         size_t each, size_t *got);

/* ---- events ---------------------------------------------------------------------------------- */

typedef enum mr_event_kind {
  MR_EVENT_ACCEPTED = 1,   /* a peer connected to us */
  MR_EVENT_CONNECTED = 2,  /* mr_connect_start succeeded */
  MR_EVENT_PATHS_OPEN = 3, /* every path of every plane is open in our sending direction */
  MR_EVENT_FAILED = 4,     /* mr_connect_start failed, see status */
  MR_EVENT_CLOSED = 5,     /* the peer closed, or our mr_close is done */
  MR_EVENT_LOST = 6,       /* the connection died, see status */
  MR_EVENT_PATH = 7,       /* a path changed its state */
  MR_EVENT_QUEUE_LOW = 8   /* a shared queue (`queue`) has fewer receives than mr_queue_arm said */
} mr_event_kind;

typedef enum mr_path_state {
  MR_PATH_OPENING = 0,
  MR_PATH_VALIDATING = 1,
  MR_PATH_GOOD = 2,
  MR_PATH_SUSPECT = 3,
  MR_PATH_DEAD = 4,
  MR_PATH_CLOSED = 5
} mr_path_state;

typedef struct mr_event {
  size_t size;
  uint32_t kind; /* mr_event_kind */
  mr_connection connection;
  uint32_t status;   /* mr_status, of the end of a connection */
  uint16_t path;     /* of MR_EVENT_PATH, as the four below */
  uint16_t plane;
  uint32_t old_state; /* mr_path_state */
  uint32_t new_state;
  uint32_t missed;   /* path events dropped before this one because nobody fetched them */
  mr_queue queue;    /* of MR_EVENT_QUEUE_LOW */
  char peer[64];     /* "10.0.0.2:28672" */
  char text[320];    /* what happened, in one line for people */
} mr_event;

/* [context] Fetches one; MR_EMPTY. Does not move packets: mr_poll and mr_context_wait do. */
MR_API mr_status mr_next_event(mr_context *context, mr_event *event);

/* ---- looking in ------------------------------------------------------------------------------ */

typedef struct mr_connection_info {
  size_t size;
  uint32_t paths;
  uint32_t planes;
  uint32_t payload;           /* bytes a full packet carries now */
  uint32_t in_flight_packets;
  uint64_t window;            /* bytes */
  uint64_t messages_sent;     /* accepted by the peer */
  uint64_t messages_received;
  uint64_t bytes_sent;        /* payload accepted by the peer */
  uint64_t bytes_received;    /* payload placed */
  char peer[64];
  char suite[24];         /* "AES-128-GCM" ...; "": plain, neither encrypted nor authenticated */
  char peer_key_name[72]; /* name of the key that the peer proved to have; "": plain */
} mr_connection_info;

typedef struct mr_path_info {
  uint16_t path;
  uint16_t plane;
  uint32_t state;       /* mr_path_state, of our sending direction */
  uint16_t source_port;
  uint16_t mtu;         /* IP packet size in use */
  uint32_t window;      /* bytes */
  uint32_t in_flight;   /* bytes */
  uint32_t reserved;
  int64_t rtt_ns;       /* smoothed round-trip time; 0: not yet known */
  int64_t least_rtt_ns;
  uint64_t packets_sent;
  uint64_t bytes_sent;
  uint64_t packets_received;
  uint64_t bytes_received;
  uint64_t lost;
  uint64_t repaired;
} mr_path_info;

/* [context] A connection that ended is an MR_UNKNOWN_HANDLE. */
MR_API mr_status mr_connection_get(mr_context *context, mr_connection connection,
                                   mr_connection_info *info);
/* [context] Up to `count` paths of a connection, *got of them; 256 hold all. */
MR_API mr_status mr_paths_get(mr_context *context, mr_connection connection, mr_path_info *paths,
                              size_t count, size_t each, size_t *got);

typedef enum mr_counter_group {
  MR_COUNTERS_CONNECTION = 0,
  MR_COUNTERS_PATH = 1,
  MR_COUNTERS_SOCKET = 2, /* of the context: system calls, datagrams, errors */
  MR_COUNTERS_DROP = 3    /* of the context: packets dropped, by reason */
} mr_counter_group;

/* [any] Counters have an index in their group; indices may change with the library's version,
 * names do not. NULL: the group ends before `index`. */
MR_API const char *mr_counter_name(int group, size_t index);
MR_API const char *mr_counter_meaning(int group, size_t index);
/* [context] The values of a group in the order of the names, *got of them. `connection` and `path`
 * are 0 where the group has none. */
MR_API mr_status mr_counters_get(mr_context *context, int group, mr_connection connection,
                                 uint32_t path, uint64_t *values, size_t count, size_t *got);

typedef struct mr_setting_info {
  size_t size;
  const char *name;
  const char *unit;
  const char *meaning;
  int64_t value; /* the default */
  int64_t minimum;
  int64_t maximum;
} mr_setting_info;

/* [any] The settings, from index 0; MR_EMPTY: no more. */
MR_API mr_status mr_setting_get(size_t index, mr_setting_info *info);

#ifdef __cplusplus
}
#endif

#endif
