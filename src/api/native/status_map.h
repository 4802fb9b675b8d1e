// From the engine's statuses to those of the C interface.
#pragma once

#include "base/status.h"
#include "metaroce/metaroce.h"

namespace metaroce::api::native {

/// Total: a status without a value here does not compile.
mr_status to_c(Status status);

/// A row of the table behind mr_status_name, mr_status_text and mr_status_check.
struct StatusRow {
  mr_status value;
  const char* name;
  const char* text;
  const char* check;
};

/// All rows; `count` receives their number.
const StatusRow* status_rows(size_t& count);

}  // namespace metaroce::api::native
