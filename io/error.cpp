#include "io/error.h"

#include <system_error>

namespace io {

Error system_error(int sys, std::string_view doing) {
  return {Errc::system, sys, std::string(doing) + ": " + std::generic_category().message(sys)};
}

}  // namespace io
