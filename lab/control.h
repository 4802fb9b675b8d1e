// How commands reach a lab: a socket that only its owner may use (whoever asks and who answers are
// of the same user, or the one does not listen and the other does not believe), which goes with the
// process that holds the lab and leaves no file outside.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/expected.h"
#include "lab/lab.h"

namespace metaroce::lab {

/// The first process of a lab: answers requests until it is told to end, gets SIGTERM or SIGINT, or
/// `lifeline` (if not -1) says that whoever it works for has gone. Returns the exit code.
/// `outside`: of claim_name() or -1; inside there is a second socket. `ready` is called once, when
/// requests may come or with what is wrong; false: nobody waits for it any more, and it ends.
int serve_lab(Lab& lab, int outside, int lifeline,
              const std::function<bool(const std::string& error)>& ready);

/// Takes the name for this user in this network namespace; a socket for serve_lab(), closed when
/// its process ends. The error says who has it.
Expected<int, std::string> claim_name(const std::string& name);

struct LabAddress {
  std::string name;  ///< "" inside of a lab
  int pid = 0;       ///< of its first process; 0: this process is inside
};

/// The lab that is meant: the one we are in, or of this name, or the only one of this user. The
/// error says which there are.
Expected<LabAddress, std::string> find_lab(const std::string& name);
/// Of this user in this network namespace.
std::vector<LabAddress> list_labs();

/// One request and its answer; an answer with "error" is an error, and so is none for so long.
Expected<nlohmann::json, std::string> ask_lab(const LabAddress& lab, const nlohmann::json& request,
                                              int patience_seconds = 120);

}  // namespace metaroce::lab
