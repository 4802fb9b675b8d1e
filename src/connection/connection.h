// One connection: owns paths, streams and timers and routes between them. No algorithm lives here:
// loss is judged in path/, windows in congestion/, matching in message/; the scheduler, the only
// place where messages and paths meet, is scheduler.cpp.
#pragma once

#include <memory>
#include <vector>

#include "connection/cpsn_filter.h"
#include "connection/run_writer.h"
#include "connection/secure_setup.h"
#include "connection/shared.h"
#include "secure/session.h"
#include "wire/control_packet.h"
#include "wire/data_packet.h"
#include "wire/handshake_packet.h"
#include "wire/probe_packet.h"

namespace metaroce::connection {

PathState public_state(path::State state);

class Connection final : public path::Listener, private message::OperationHost {
 public:
  Connection(Shared& shared, ConnectionHandle handle);
  ~Connection();

  // --- set-up (handshake.cpp) ---
  void start_connect(Time now, const std::vector<SocketAddress>& peer,
                     std::unique_ptr<SecureSetup> security = nullptr);
  /// Responder: takes a HELLO that no connection knew; `proven`: its source address is no lie.
  void start_accept(Time now, const wire::HelloPacket& hello, const RxPacket& rx, bool proven);
  void on_hello_again(Time now, const wire::HelloPacket& hello, const RxPacket& rx);
  /// The HELLO of the one we ask ourselves wins over ours (MR-CONN-009): we become its responder.
  void yield_to(Time now, const wire::HelloPacket& hello, const RxPacket& rx);
  /// Our HELLO and the peer's have the same nonce: a fresh one.
  void ask_anew(Time now);
  /// A packet of `bytes` came before CONFIRM: ours or the peer's answer was lost.
  void repeat_accept(size_t bytes);
  void on_accept(Time now, const wire::HelloPacket& accept, const RxPacket& rx);
  /// An ACCEPT with a critical TLV that we do not understand.
  void on_foreign_accept(Time now, const wire::HelloHead& head);
  void on_cookie(Time now, const wire::CookiePacket& cookie, const RxPacket& rx);
  void on_confirm(Time now, const wire::ConfirmPacket& confirm, const RxPacket& rx);
  void on_refuse(Time now, const wire::RefusePacket& refuse, const RxPacket& rx);
  /// A sealed packet of a half-open connection says what CONFIRM says (MR-CONN-014).
  void on_sealed_confirm(Time now, const RxPacket& rx);
  uint64_t nonce() const { return nonce_; }
  uint64_t peer_nonce() const { return peer_nonce_; }
  bool is_responder() const { return !initiator_; }
  /// This address and port is one that our HELLO goes to.
  bool asks(const SocketAddress& from) const;
  /// The host is the peer's, as far as we know.
  bool knows(const SocketAddress& from) const;

  // --- packets of an open connection (receive.cpp) ---
  /// True when `placement` was filled.
  bool on_data(Time now, const RxPacket& rx, Placement& placement);
  /// True while the last on_data() was such that packets which go on from it need no question
  /// but whether they do (receive_run.cpp). Nothing else of this connection may be called until
  /// end_run().
  bool in_run() const { return run_.slot != nullptr; }
  /// Takes a packet that goes on where the last one ended and fills its placement; false when it
  /// does not and is to be handled as usual, after end_run().
  bool continue_run(const RxPacket& rx, Placement& placement);
  /// Notes what continue_run() took.
  void end_run(Time now);
  void on_control(Time now, const RxPacket& rx);
  void on_probe(Time now, const RxPacket& rx);
  void on_void(Time now, const RxPacket& rx);
  void on_ack(Time now, const RxPacket& rx);
  /// True if it speaks of this connection.
  bool on_unknown_connection(Time now, const wire::UnknownConnectionPacket& packet);

  // --- keys (sealed.cpp) ---
  bool secured() const { return session_ != nullptr; }
  /// It asks for keys, or is about to answer with them.
  bool offers_security() const { return security_ != nullptr; }
  /// Decrypts in place; `body` becomes the length without the tag. kNone, or why it is dropped.
  wire::DropReason open_sealed(Time now, std::span<std::byte> packet, size_t& body);
  /// Before transmit(): a key that sealed enough is followed by the next one (MR-SEC-006).
  void renew_key(Time now) {
    if (session_ != nullptr) renew_sealing_key(now);
  }
  /// After transmit().
  void count_sealed(std::span<const TxRun> runs) {
    if (session_ != nullptr) count_sealed_runs(runs);
  }
  /// An attempt that wants this very peer takes no other one for it.
  bool may_yield_to(const wire::HelloPacket& hello) const;

  // --- sending (scheduler.cpp) ---
  size_t transmit(Time now, std::span<TxRun> runs);

  // --- time and hints (timers.cpp) ---
  void on_deadline(Time now);
  Time deadline() const { return deadline_; }
  void update_deadline(Time now);
  void on_network_hint(Time now, uint8_t path, NetworkHint hint, uint32_t value);
  void on_plane_state(Time now, uint8_t plane, bool up);
  bool change_port(Time now, uint8_t path, uint16_t port);
  /// Shared::local of this plane has changed, or is gone (`present` false).
  void on_local_address(Time now, uint8_t plane, bool present);

  // --- work (connection.cpp) ---
  Status post(const WorkRequest& request);
  Status post_receive(Time now, const ReceiveRequest& request);
  size_t poll(std::span<Completion> out);
  void close(Time now, uint32_t code);
  Status set_stream_options(uint16_t stream, const message::StreamOptions& options);
  /// Both directions of the stream end: what is posted is flushed, the peer is told (MR-MSG-006).
  Status reset_stream(uint16_t stream);
  Status drain_stream(uint16_t stream);
  bool reopen_stream(uint16_t stream);
  void set_domain(memory::Domain domain) { domain_ = domain; }
  void on_queue_filled(uint16_t stream);
  /// Atomics whose turn has come; to be called when all placements before them are carried out.
  void execute_atomics();

  void fill_status(Time now, ConnectionStatus& out) const;
  /// Adds the counters of all paths, and of the connection.
  void add_counters(PathCounters& paths, ConnectionCounters& own) const;
  size_t fill_path_status(std::span<PathStatus> out) const;
  uint64_t hash() const;
  bool idle() const;
  ConnectionState state() const { return state_; }
  ConnectionHandle handle() const { return handle_; }
  bool has_completions() const { return completions_hint_; }
  /// Its paths are folded (MR-CONN-040).
  bool resting() const { return paths_.resting(); }
  /// What it holds at rest beside the shared pools; `counters`: of its paths, for people to read.
  size_t state_bytes() const;
  size_t counter_bytes() const { return paths_.counter_bytes(); }

 private:
  /// What the next packet of a run must say, and what was taken but not noted yet.
  struct ReceiveRun {
    PathSlot* slot = nullptr;  ///< null: no run
    uint32_t w0 = 0;           ///< without the floor
    uint32_t seq = 0;
    uint32_t cpsn = 0;
    uint32_t w5 = 0;
    uint32_t msn = 0;
    uint32_t offset = 0;
    uint32_t key = 0;
    uint64_t address = 0;
    memory::Target target;
    uint32_t message = message::kNoIndex;
    uint32_t stamp = 0;
    uint32_t packets = 0;
    uint32_t bytes = 0;
  };

  // path::Listener (fate.cpp)
  void on_delivered(uint8_t path, uint32_t seq, const path::SentRecord& record, bool refused,
                    bool was_lost) override;
  void on_delivered_run(uint8_t path, uint32_t first_seq, uint32_t count, uint32_t bytes,
                        const path::SentRecord* records) override;
  void on_lost(uint8_t path, uint32_t seq, const path::SentRecord& record) override;
  bool is_decided(uint32_t cpsn) const override {
    return !window_ || !window_->contains(cpsn) ||
           window_->at(cpsn).state != SendEntry::State::kUndecided;
  }
  void decide(uint32_t cpsn, SendEntry& entry, bool refused, uint8_t path);
  void queue_repair(uint32_t cpsn, SendEntry& entry, uint16_t list);
  void unqueue(uint32_t cpsn, SendEntry& entry);
  RepairList& list(uint16_t id);
  void on_control_accepted(uint32_t slot);
  void on_control_refused(uint32_t slot);
  bool has_control_slot() const;
  void open_waiting_paths();
  void note_big_loss(PathSlot& slot);
  void note_big_arrival(PathSlot& slot);
  void apply_marks(Time now, PathSlot& slot, const path::AckOutcome& outcome, uint16_t ce,
                   bool limited, bool all_limited);

  // what others see (observe.cpp, stall.cpp)
  void note_change(PathSlot& slot, PathChange reason);
  void note_state(Status status);
  void note_stall(Time now);
  StallReason stall_reason(Time now) const;
  StallReason stall_of_waiting() const;

  // security (secure_setup.cpp, sealed.cpp)
  void offer_security(wire::HandshakeParams& params, bool accept);
  bool secure_as_responder(const SecurePlan& plan, const wire::HelloPacket& hello);
  wire::SetupRefusal secure_as_initiator(const wire::HelloPacket& accept);
  secure::Digest transcript() const;
  void install_keys(const secure::HandshakeKeys& keys);
  void open_sealing(const PathSlot& slot, uint32_t start) {
    if (session_ != nullptr) {
      session_->open_send_path(slot.tx.id, static_cast<uint16_t>(slot.tx.generation), start);
    }
  }
  uint32_t trailer_bytes() const {
    return static_cast<uint32_t>(session_ == nullptr ? wire::kCrcBytes : wire::kTagBytes);
  }
  void renew_sealing_key(Time now);
  void count_sealed_runs(std::span<const TxRun> runs);
  void on_key_update_heard(Time now);
  bool may_guess_key(Time now);
  void confirmed(Time now, const RxPacket& rx);

  // set-up
  void create_tables(uint32_t peer_cpsn);
  void become_open(Time now, ConnectionEventKind kind);
  void fail(Time now, Status status, ConnectionEventKind kind);
  bool has_asked(const SocketAddress& from) const;
  uint8_t announced_paths() const;
  uint64_t transcript_mac() const;
  void remember_peer(const wire::HelloPacket& packet, const RxPacket& rx);
  void open_handshake_paths();
  void measure_setup(Time now);
  void encode_hello(bool accept);
  void send_setup(RunWriter& writer, std::span<const std::byte> bytes, uint8_t plane,
                  const SocketAddress& to);
  void event(ConnectionEventKind kind, Status status, uint32_t detail = 0);
  void begin_asking(Time now);

  // paths and planes (planes.cpp)
  void open_other_paths();
  void start_pmtu_search(Time now, PathSlot& slot, uint16_t goal, bool verify);
  void stop_pmtu_search(PathSlot& slot);
  void on_padded_acked(Time now, PathSlot& slot, uint16_t ip_size);
  void on_padded_lost(PathSlot& slot);
  uint16_t pmtu_target(uint8_t plane) const;
  uint16_t next_lower(uint8_t plane, uint16_t size) const;
  uint32_t payload_for(uint8_t plane, uint16_t pmtu) const;
  void on_too_big(Time now, PathSlot& slot, uint32_t reported);
  void update_payload();
  void recut_large();
  void verdict(Time now, PathSlot& slot);
  void declare_dead(Time now, PathSlot& slot, PathChange reason);
  void lose_plane(Time now, uint8_t plane, PathChange reason);
  void probe_plane(Time now, uint8_t plane);
  void after_state_change(PathSlot& slot);
  void tell_path_state(PathSlot& slot);
  void check_paths_open();
  void send_port_status(Time now);
  void on_port_status(Time now, const wire::ControlPacket& packet);
  void on_add_addr(Time now, const wire::ControlPacket& packet);
  bool has_way_around(uint8_t plane) const;
  void reopen_plane(Time now, uint8_t plane);
  uint32_t active_paths() const;
  uint16_t take_port();

  // receive helpers
  void begin_receive_run(const wire::DataPacket& packet, PathSlot& slot,
                         const memory::Target& target);
  void note(Time now, PathSlot& slot, const RxPacket& rx, const wire::Sequenced& s, Fate fate,
            bool ack_now, bool fresh_refusal, uint16_t stream);
  PathSlot* incoming_path(const wire::Sequenced& s);
  bool execute_control(Time now, const wire::ControlPacket& packet, const RxPacket& rx);
  void open_incoming(const wire::ControlPacket& packet, const RxPacket& rx);
  wire::Refusal admit(const wire::DataPacket& packet, message::Admission& admission,
                      memory::Target& target);
  wire::Refusal admit_operation(const wire::DataPacket& packet, message::Admission& admission);
  bool place(const wire::DataPacket& packet, const message::Admission& admission,
             const memory::Target& target, Placement& placement);
  bool on_response(Time now, const wire::DataPacket& packet, const RxPacket& rx, PathSlot& slot,
                   Placement& placement);
  void repeat_refusal(const wire::DataPacket& packet, PathSlot& slot);
  void note_accepted(Time now, const wire::DataPacket& packet, const RxPacket& rx, PathSlot& slot);
  void refuse(Time now, const wire::DataPacket& packet, const RxPacket& rx, PathSlot& slot,
              wire::Refusal reason, uint32_t rq_seq);
  // message::OperationHost (operations.cpp)
  void on_turn(uint32_t operation) override;
  void on_never(uint32_t operation) override;
  void on_invalidate(uint32_t key) override { shared_.regions.invalidate(key); }
  uint64_t perform(const message::RemoteOperation& operation, std::byte* address);
  bool is_readable(const message::Fragment& fragment);
  void send_response_errors();
  bool tells_errors_of(uint16_t stream) const;
  void void_stream(uint16_t stream);

  // scheduler
  void transmit_setup(Time now, RunWriter& writer);
  void transmit_acks(Time now, RunWriter& writer);
  void transmit_probes(Time now, RunWriter& writer);
  void transmit_repairs(Time now, RunWriter& writer);
  void transmit_new(Time now, RunWriter& writer);
  void transmit_copies(Time now, RunWriter& writer);
  bool drain_list(Time now, RunWriter& writer, RepairList& repair, PathSlot* path);
  bool send_probe(Time now, RunWriter& writer, PathSlot& slot, uint16_t ip_size, uint16_t stream);
  void repeat_probe(Time now, RunWriter& writer, PathSlot& slot);
  bool resend_lowest(Time now, RunWriter& writer, PathSlot& slot);
  void free_lowest(PathSlot& slot);
  void probe_path(Time now, RunWriter& writer, PathSlot& slot);
  void send_ack(Time now, RunWriter& writer, PathSlot& slot);
  bool send_entry(Time now, RunWriter& writer, PathSlot& slot, uint32_t cpsn, SendEntry& entry,
                  bool last, bool copy = false);
  size_t encode_entry(Time now, PathSlot& slot, uint32_t cpsn, const SendEntry& entry, uint32_t seq,
                      uint8_t flags, std::byte* out, const std::byte*& payload) const;
  void send_one_by_one(Time now, RunWriter& writer, PathSlot& slot,
                       std::span<const message::Fragment> fragments, bool last);
  void send_run(Time now, RunWriter& writer, PathSlot& slot,
                std::span<const message::Fragment> fragments, bool last);
  uint32_t entry_size(const SendEntry& entry) const;
  wire::Sequenced sequenced(Time now, const PathSlot& slot, uint32_t seq, uint32_t cpsn) const;
  void begin_run(RunWriter& writer, const PathSlot& slot, bool is_data);
  PathSlot* choose_path(Time now, uint32_t size, uint32_t not_path = kMaxPaths);
  uint32_t worthwhile(const PathSlot& slot, uint32_t size) const;
  uint32_t wanted_run() const;
  uint32_t run_length(const PathSlot& slot, uint32_t size) const;
  uint32_t new_packet_budget() const;
  uint32_t queue_control(const wire::ControlPacket& body, uint16_t list);
  void send_resets();
  void send_credit_news(Time now, RunWriter& writer);
  void send_credit_probe(Time now, RunWriter& writer);
  void drop_all_sends();
  /// Whatever looks at paths has them unfolded first. No path has a timer or a wish then, so what
  /// the last survey found still holds.
  void wake() {
    if (paths_.resting()) paths_.wake(shared_.telemetry.now(), peer_);
  }
  void try_rest(Time now);
  bool may_rest() const;
  Time next_keep_alive() const {
    return std::max(heard_at_, kept_at_) + nanoseconds(shared_.settings.keep_alive);
  }
  void survey_paths();
  /// The timers of a path may have changed: none of them ends unseen.
  void watch(const PathSlot& slot) {
    path_timer_from_ = earlier(path_timer_from_, earlier(slot.tx.deadline(), slot.pmtu_at));
  }
  void owe_ack(const PathSlot& slot) {
    ack_owed_.set(slot.tx.id);
    ack_from_ = earlier(ack_from_, slot.rx.ack_at());
  }
  void path_timers(Time now);
  void setup_timers(Time now);
  void backstop(Time now);
  void keep_alive(Time now);
  void shorten_verdict(Time now, Status status);
  bool probes_went_unanswered() const;
  void die(Time now, Status status);
  Duration smallest_srtt() const;

  Shared& shared_;
  const ConnectionHandle handle_;
  ConnectionState state_ = ConnectionState::kDead;
  bool initiator_ = false;
  bool paths_open_told_ = false;
  bool payload_dirty_ = false;
  bool completions_hint_ = false;
  bool announce_acks_ = false;  ///< set AR on the next packet (after CONFIRM)
  bool confirm_due_ = false;
  bool hello_due_ = false;
  bool accept_due_ = false;
  bool called_ = false;          ///< the application asked for this connection
  Time opened_at_{0};            ///< as long as heard_at_ is the same, nothing was heard since
  std::vector<SocketAddress> asked_from_;  ///< hosts that an ACCEPT went to, at most kMaxPlanes
  bool proven_ = false;          ///< the peer's address answered, so answers may be larger
  uint8_t setup_plane_ = 0;
  uint8_t hello_count_ = 0;
  uint32_t setup_credit_ = 0;    ///< bytes we may send before the peer's address is proven
  uint32_t setup_detail_ = 0;    ///< what a REFUSE said: reason 8, TLV 8, versions 16
  uint32_t close_code_ = 0;      ///< what the peer's CLOSE said
  uint32_t peer_id_ = 0;
  uint64_t nonce_ = 0;
  uint64_t mac_ = 0;             ///< of the transcript, once both packets are known
  uint64_t peer_nonce_ = 0;
  uint32_t start_seq_ = 0;
  uint32_t start_cpsn_ = 0;
  std::unique_ptr<SecureSetup> security_;     ///< until the connection is open
  std::unique_ptr<secure::Session> session_;  ///< null: plain
  const char* peer_name_ = "";
  bool key_update_pending_ = false;  ///< KEY_UPDATE is on its way
  Time key_update_from_{0};          ///< no further update before
  SocketAddress peer_from_;  ///< where the answer to a HELLO goes
  std::unique_ptr<wire::HandshakeParams> peer_params_;  ///< until the connection is open
  uint8_t peer_max_paths_ = 0;
  uint16_t peer_pmtu_ = 0;
  std::vector<std::byte> hello_bytes_;   ///< the HELLO, sent or received, for the transcript
  std::vector<std::byte> accept_bytes_;  ///< the ACCEPT, sent or received
  uint32_t peer_start_seq_ = 0;
  uint8_t peer_open_paths_ = 0;
  std::vector<SocketAddress> peer_;  ///< the peer's address on each of our planes
  uint8_t planes_ = 0;

  PathTable paths_;        ///< by path id; both directions
  uint32_t tx_paths_ = 0;  ///< of them we send on
  std::unique_ptr<SendWindow> window_;
  std::unique_ptr<CpsnFilter> filter_;
  ReceiveRun run_;
  RepairList any_;
  RepairList control_;
  uint32_t controls_used_ = 0;  ///< of the engine's control slots
  message::Sender sender_;
  message::Receiver receiver_;
  congestion::Window congestion_;
  ConnectionCounters counters_;
  ConnectionState told_state_ = ConnectionState::kDead;
  StallReason told_stall_ = StallReason::kNone;
  Time stalled_at_{0};

  /// Why the newest packets were refused: a copy on another path gets the same answer, its reason
  /// included (MR-ACK-013).
  struct RecentRefusal {
    uint32_t cpsn = 0;
    uint32_t rq_seq = 0;
    uint16_t stream = 0;
    wire::Refusal reason = wire::Refusal::kUnknown;
    uint8_t delay = 0;
  };
  std::array<RecentRefusal, 8> refusals_;
  uint8_t next_refusal_ = 0;
  memory::Domain domain_ = 0;
  bool resetting_ = false;    ///< a stream, by our program
  bool atomics_due_ = false;  ///< it stands in the list of those with atomics to execute
  uint32_t payload_ = 0;
  uint32_t wanted_run_ = 1;   ///< packets of a run, by what waits
  uint32_t good_paths_ = 0;   ///< as of the last survey
  uint32_t repairs_ = 0;      ///< CPSNs in all repair lists
  bool survey_due_ = true;    ///< something happened to paths that survey_paths() must see
  bool probes_due_ = false;   ///< a path wants to send a probe
  Time path_timer_from_{0};   ///< no path timer ends earlier; may be too early
  Time ack_from_ = kNever;    ///< no ACK is due earlier; may be too early
  Bitmap256 ack_owed_;        ///< by path id: something was received since the last ACK
  Duration backstop_wait_{};  ///< as of the last survey
  uint8_t last_rx_path_ = 0;
  wire::Backlog backlog_ = wire::Backlog::kNone;
  uint32_t in_flight_packets_ = 0;
  uint64_t in_flight_bytes_ = 0;
  uint32_t peer_inflight_ = 0;
  uint32_t ack_counter_ = 0;
  uint32_t highest_ack_counter_ = 0;
  uint32_t next_path_hint_ = 0;
  uint32_t port_generation_ = 0;
  uint32_t peer_port_generation_ = 0;
  uint32_t address_generation_ = 0;
  std::array<uint32_t, kMaxPlanes> peer_address_generation_{};
  uint16_t peer_mask_ = 0xFFFF;
  const wire::AckPacket* current_ack_ = nullptr;  ///< while on_ack runs
  uint32_t newest_refused_ = 0;
  uint32_t current_refused_seq_ = 0;
  Time current_time_{0};
  uint64_t acked_bytes_now_ = 0;

  Time deadline_ = kNever;
  Time setup_at_ = kNever;
  Time setup_sent_at_ = kNever;
  Duration setup_rtt_{};
  Time give_up_at_ = kNever;
  Status setup_hint_ = Status::kUnresponsive;
  Time expect_since_ = kNever;  ///< since then we wait to hear anything
  Time verdict_at_ = kNever;    ///< a hint shortened the wait
  Status verdict_status_ = Status::kUnresponsive;
  Time heard_at_{0};
  Time progress_at_{0};
  Time kept_at_{-(1ll << 60)};        ///< last keep-alive probe
  Time retry_at_ = kNever;            ///< a pool of the engine was empty
  uint32_t next_open_ = 0xFFFFFFFFu;  ///< first path whose PATH_OPEN was not queued yet
  uint32_t setup_hints_ = 0;
  Time marked_at_{-(1ll << 60)};
  Time credit_probe_at_ = kNever;
  Duration credit_probe_wait_{};
  Time time_wait_end_ = kNever;
  Time raise_pmtu_at_ = kNever;
  Time rest_at_ = kNever;  ///< unless something happens before
};

}  // namespace metaroce::connection
