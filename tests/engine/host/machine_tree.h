// A made-up machine as the kernel would describe it: /proc and control groups in a folder.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "tests/temp_folder.h"

namespace engine::testing {

class MachineTree {
 public:
  [[nodiscard]] const std::filesystem::path& root() const { return folder_.path(); }

  MachineTree& write(const std::string& file, std::string_view text) {
    std::filesystem::create_directories((root() / file).parent_path());
    folder_.write(file, std::as_bytes(std::span(text)));
    return *this;
  }

  // 16 GiB in all, 8 GiB available.
  MachineTree& with_meminfo() {
    return write("proc/meminfo",
                 "MemTotal:       16777216 kB\nMemFree:          524288 kB\n"
                 "MemAvailable:    8388608 kB\nCached:          7000000 kB\n");
  }
  // This process is in `group`; /sys/fs/cgroup shows `mounted` and what is below.
  MachineTree& with_v2(const std::string& group, const std::string& mounted = "/") {
    return write("proc/self/cgroup", "0::" + group + "\n")
        .write("proc/self/mountinfo",
               "22 1 8:1 / / rw - ext4 /dev/root rw\n30 22 0:26 " + mounted +
                   " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
  }
  MachineTree& with_v1(const std::string& group, const std::string& mounted = "/") {
    return write("proc/self/cgroup", "11:cpu,cpuacct:" + group + "\n9:memory:" + group +
                                         "\n1:name=systemd:" + group + "\n0::/\n")
        .write("proc/self/mountinfo",
               "31 22 0:27 " + mounted +
                   " /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n32 22 0:28 " + mounted +
                   " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  }

 private:
  tests::TempFolder folder_;
};

}  // namespace engine::testing
