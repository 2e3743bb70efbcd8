#include "capi/text.hpp"

#include <cstdlib>
#include <cstring>

namespace penstock::capi {

Status copy_text(std::string_view text, char** out) {
  // lint: allow malloc because C callers free it with penstock_free
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return make_error(Errc::kNoMemory, "no memory for a report");
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  *out = copy;
  return ok();
}

}  // namespace penstock::capi
