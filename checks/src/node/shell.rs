//! The same reading as a shell script, for a pod whose image has no kvwire. It needs a POSIX shell with `readlink` and
//! `df`; `od`, `ethtool`, `sed` and `nvidia-smi` are used where they are. busybox is enough. It writes nothing but its output.

use std::fmt::Write as _;

use super::wanted::{How, IN_WHEEL, OF_PCI_DEVICE, SITE_PACKAGES, VARIABLES, WANTED};

/// Built-in `read` instead of `cat`: a node has thousands of small files, and a process for each would take minutes.
const FUNCTIONS: &str = r#"
L='
'
body() { c=0; while IFS= read -r l || [ -n "$l" ]; do [ $c -ge 400 ] && break; [ -n "$2" ] && [ -z "$l" ] && break
 printf ' %s\n' "$l"; c=$((c+1)); l=; done <"$1"; }
gone() { if [ -e "$1" ] || [ -L "$1" ]; then printf 'P %s\n' "${1#"$R"}"; else printf 'M %s\n' "${1#"$R"}"; fi; }
text() { if true 2>/dev/null <"$1"; then printf 'T %s\n' "${1#"$R"}"; body "$1" "$2" 2>/dev/null; else gone "$1"; fi; }
para() { text "$1" p; }
names() { if [ -d "$1" ] && [ -r "$1" ]; then printf 'D %s\n' "${1#"$R"}"; for e in "$1"/*; do
 [ -e "$e" ] || [ -L "$e" ] || continue; printf ' %s\n' "${e##*/}"; done; else gone "$1"; fi; }
link() { if [ -L "$1" ]; then printf 'L %s\n %s\n' "${1#"$R"}" "$(readlink "$1")"; else gone "$1"; fi; }
real() { [ -e "$1" ] || return 0; r=$(readlink -f "$1"); printf 'R %s\n %s\n' "${1#"$R"}" "${r#"$R"}"; }
node() { if [ -e "$1" ]; then m=-; [ -c "$1" ] && m=c; if [ -r "$1" ]; then m=${m}r; else m=$m-; fi
 if [ -w "$1" ]; then m=${m}w; else m=$m-; fi; printf 'N %s\n %s\n' "${1#"$R"}" "$m"; else gone "$1"; fi; }
gids() { for f in "$1"/gids/*; do v=; { read -r v <"$f"; } 2>/dev/null || [ -n "$v" ] || continue
 case $v in ''|0000:0000:0000:0000:0000:0000:0000:0000) continue;; esac
 text "$f"; text "$1/gid_attrs/types/${f##*/}"; text "$1/gid_attrs/ndevs/${f##*/}"; done; }
bytes() { if true 2>/dev/null <"$1"; then x=$(od -An -v -tx1 "$1" 2>/dev/null) || return 0
 printf 'X %s\n' "${1#"$R"}"; printf '%s\n' "$x" | while read -r l; do printf ' %s\n' "$l"; done; else gone "$1"; fi; }
pci() { [ -e "$1" ] || return 0; r=$(readlink -f "$1"); printf 'R %s\n %s\n' "${1#"$R"}" "${r#"$R"}"
 while :; do case ${r##*/} in ????:??:??.?) ;; *) break;; esac; case $SEEN in *" $r "*) break;; esac; SEEN="$SEEN $r "
 for a in $A; do text "$r/$a"; done; bytes "$r/config"; r=${r%/*}; done; }
gpu() { v=; { read -r v <"$1/vendor"; } 2>/dev/null; [ "$v" = 0x10de ] || return 0
 v=; { read -r v <"$1/class"; } 2>/dev/null; case $v in 0x03*) pci "$1";; esac; }
all() { k=$1; shift; for p in "$@"; do case $p in *[*?]*) [ -e "$p" ] || [ -L "$p" ] || continue;; esac; "$k" "$p"; done; }
"#;

/// What can only be asked of a live machine, and the end.
const LIVE: &str = r#"
g=; while read -r l; do case $l in 0::*) g=${l#0::};; esac; done 2>/dev/null <"$R/proc/self/cgroup"
case $g in *..*) g=;; esac
while [ ${#g} -gt 1 ]; do text "$R/sys/fs/cgroup$g/cpu.max"; text "$R/sys/fs/cgroup$g/cpu.stat"; g=${g%/*}; done
if [ -z "$R" ]; then
if command -v ethtool >/dev/null 2>&1; then
 for d in $(cat /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/* 2>/dev/null | sort -u); do
  q=$(ethtool -S "$d" 2>/dev/null | sed -n 's/^ *\([a-z_]*prio[a-z0-9_]*\): *\([0-9]*\)$/\1 \2/p' | sed -n '/pause/p;/discard/p')
  [ -n "$q" ] && { echo "T probe:ethtool/$d"; printf '%s\n' "$q" | while IFS= read -r l; do printf ' %s\n' "$l"; done; }
 done
fi
s=$(df -Pk /dev/shm 2>/dev/null) && set -- ${s##*"$L"} && printf 'T probe:shm\n total_kib %s\n available_kib %s\n' "$2" "$4"
if command -v nvidia-smi >/dev/null 2>&1; then
 q=$(nvidia-smi --query-gpu=index,uuid,pci.bus_id,name,driver_version,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max --format=csv,noheader,nounits 2>/dev/null) && {
 echo 'T probe:nvidia-smi'; printf '%s\n' "$q" | while IFS= read -r l; do printf ' %s\n' "$l"; done; }
 q=$(nvidia-smi -q 2>/dev/null | sed -n '/^    Fabric *$/,/^    [A-Za-z]/p') && [ -n "$q" ] && {
  echo 'T probe:nvidia-smi-fabric'; printf '%s\n' "$q" | while IFS= read -r l; do printf ' %s\n' "$l"; done; }
 q=$(nvidia-smi nvlink -s 2>/dev/null) && { echo 'T probe:nvidia-smi-nvlink'; printf '%s\n' "$q" | while IFS= read -r l; do printf ' %s\n' "$l"; done; }
fi
fi
echo E
"#;

/// The whole script. `$R` in its environment names another root directory than `/` (used by tests).
pub fn script() -> String {
    let mut out = String::from("LC_ALL=C; export LC_ALL; R=${KVWIRE_ROOT:-}; SEEN=; umask 077\n");
    // Writing to a String cannot fail.
    let _ = writeln!(out, "A='{}'", OF_PCI_DEVICE.join(" "));
    out.push_str(FUNCTIONS.trim_start());
    out.push_str("echo 'kvwire.capture/1 shell'\n");
    for (how, pattern) in WANTED {
        let _ = writeln!(out, "all {} \"$R\"{pattern}", function(*how));
    }
    let _ = writeln!(
        out,
        "for d in {} ${{VIRTUAL_ENV:+\"$R$VIRTUAL_ENV\"/lib/python3*/site-packages}}; do",
        folders()
    );
    for name in IN_WHEEL {
        let _ = writeln!(out, " all real \"$d\"/{name}");
    }
    out.push_str("done\n");
    let patterns = VARIABLES.iter().map(|prefix| format!("{prefix}*=*")).collect::<Vec<_>>().join("|");
    let _ = writeln!(
        out,
        "[ -n \"$R\" ] || env | while IFS= read -r l; do case $l in {patterns}) \
         printf 'T env:%s\\n %s\\n' \"${{l%%=*}}\" \"${{l#*=}}\";; esac; done"
    );
    out.push_str(LIVE.trim_start());
    out
}

fn folders() -> String {
    SITE_PACKAGES.iter().map(|folder| format!("\"$R\"{folder}")).collect::<Vec<_>>().join(" ")
}

fn function(how: How) -> &'static str {
    match how {
        How::Text => "text",
        How::Paragraph => "para",
        How::Names => "names",
        How::Link => "link",
        How::Real => "real",
        How::Node => "node",
        How::Gids => "gids",
        How::PciPath => "pci",
        How::GpuPath => "gpu",
    }
}
