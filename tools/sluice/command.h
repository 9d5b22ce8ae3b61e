// The subcommands of `sluice`.  Each adds itself to the command line and, when chosen, runs and
// leaves its exit code in `exit_code`: 0 done, 1 failed (message printed), 2 wrong flags, 130
// interrupted.
#pragma once

#include "io/error.h"

namespace CLI {
class App;
}

namespace sluice {

void add_inspect(CLI::App& app, int& exit_code);
void add_pack(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_synth(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);

// Prints "sluice: <message>" on stderr and returns the exit code for it.
int report_error(const io::Error& error);

}  // namespace sluice
