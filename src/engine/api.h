// What goes in and out of an engine, under the names its users know (declared in connection/io.h).
#pragma once

#include "connection/io.h"

namespace metaroce::engine {

using connection::RxPacket;
using connection::Opening;
using connection::Placement;
using connection::TxRun;
using connection::ConnectionEventKind;
using connection::ConnectionEvent;
using connection::NetworkHint;
using connection::PathEvent;
using connection::PathState;
using connection::PathChange;
using connection::StallReason;
using connection::PathStatus;
using connection::EngineMemory;
using connection::EnginePools;
using connection::ConnectionState;
using connection::ConnectionStatus;
using connection::kReceiveBuffer;
using connection::kRunHeaderBytes;
using connection::to_string;
using message::Completion;
using message::ConnectionHandle;
using message::Operation;
using message::ReceiveRequest;
using message::Segment;
using message::StreamOptions;
using message::kMaxInline;
using message::kMaxSegments;
using message::kRetryForEver;
using message::WorkRequest;

}  // namespace metaroce::engine
