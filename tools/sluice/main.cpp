#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "tools/sluice/command.h"

namespace sluice {

int report_error(const io::Error& error) {
  std::fprintf(stderr, "sluice: %s\n", error.message.c_str());
  return error.code == io::Errc::interrupted ? 130 : 1;
}

}  // namespace sluice

int main(int argc, char** argv) {
  // A closed pipe and a limit on the size of files are write errors, reported like any other.
  for (const int signal_number : {SIGPIPE, SIGXFSZ}) std::signal(signal_number, SIG_IGN);
  CLI::App app{"Sluice runs Kimi K3 with its weights streamed from disk.", "sluice"};
  app.require_subcommand(1);
  app.set_version_flag("--version", SLUICE_VERSION);
  int exit_code = 0;
  sluice::add_run(app, exit_code);
  sluice::add_inspect(app, exit_code);
  sluice::add_pack(app, exit_code);
  sluice::add_synth(app, exit_code);
  sluice::add_verify(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "sluice: out of memory\n");
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice: %s\n", error.what());
    return 1;
  }
  return exit_code;
}
