#!/usr/bin/env bash
# run.sh [RESULTS]: what kvwire does on a machine with a GPU, without a network and in under four minutes.
#
# Lies in the folder that `make gpu-bundle` fills, beside kvwire and the NIXL archives. Writes everything to the folder
# RESULTS (default: ./kvwire-gpu-results), and one line for each item to standard output and to RESULTS/summary.txt:
#
#     pass          ITEM  what was seen
#     fail          ITEM  why
#     not possible  ITEM  why it cannot be tried here
#
# Exit code: 0 when nothing failed, 2 when the folder cannot be written to, else 1. A NIXL of your own:
# KVWIRE_NIXL_LIB=/path/libnixl_capi.so. Seconds for everything and for one item: LIMIT_S, ITEM_LIMIT_S. The largest block
# of each run: LARGEST (default: 64MiB).
set -u
bundle=$(cd "$(dirname "$0")" && pwd)
kvwire=${KVWIRE:-$bundle/kvwire}
results=${1:-kvwire-gpu-results}
if ! mkdir -p "$results" || ! results=$(cd "$results" && pwd) || ! : >"$results/summary.txt"; then
    echo "run.sh: cannot write to the folder $results; name another one: run.sh /tmp/results" >&2
    exit 2
fi
begin=$SECONDS
# Everything below that can hang is ended three seconds after its time at the latest, so this is under four minutes.
limit=${LIMIT_S:-225}
item_limit=${ITEM_LIMIT_S:-40}
largest=${LARGEST:-64MiB}
failed=0
trap 'kill $(jobs -p) 2>/dev/null' EXIT

left() { echo $((limit - (SECONDS - begin))); }

# within SECONDS COMMAND...: ends it after SECONDS, or when the time of the script is over. Its exit code, 124 when it was
# ended, 137 when it had to be killed. What hangs inside the driver cannot even be killed: it is left behind.
within() {
    local most=$1 left pid end
    shift
    left=$(left)
    [ "$left" -gt 0 ] || return 124
    [ "$most" -le "$left" ] || most=$left
    timeout -k 2 "$most" "$@" &
    pid=$!
    end=$((SECONDS + most + 3))
    # Quietly: the shell would tell of each process that is killed, into the log of that process.
    {
        while kill -0 "$pid"; do
            [ "$SECONDS" -lt "$end" ] || return 124
            sleep 0.2
        done
        wait "$pid"
    } 2>/dev/null
}

# NVIDIA's tool, where it is there and answers: on a sick GPU it hangs, and is asked no more.
smi() {
    [ ! -e "$results/nvidia-smi-hangs" ] || return 1
    within $((item_limit < 10 ? item_limit : 10)) nvidia-smi "$@" 2>/dev/null
    case $? in
    0) ;;
    124 | 137) : >"$results/nvidia-smi-hangs"; return 1 ;;
    *) return 1 ;;
    esac
}

say() { # WORD ITEM TEXT
    printf '%-12s  %-28s  %s\n' "$1" "$2" "$3" | tee -a "$results/summary.txt"
    [ "$1" != fail ] || failed=1
}

# NIXL for the CUDA that the driver supports: 13 needs a driver that says so, 12 runs on both.
choose_nixl() {
    local cuda flavour
    [ -z "${KVWIRE_NIXL_LIB:-}" ] || { echo "$KVWIRE_NIXL_LIB"; return; }
    # By way of a file: a pipe would wait for whoever was left behind.
    smi >"$results/driver.out"
    cuda=$(sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' "$results/driver.out" | head -n 1)
    flavour=cu12
    [ "${cuda:-0}" -lt 13 ] || flavour=cu13
    within 30 tar -xzf "$bundle/nixl-$flavour.tar.gz" -C "$results" >"$results/unpack.out" 2>&1 || return 1
    echo "$results/nixl-$flavour/.nixl_$flavour.mesonpy.libs/libnixl_capi.so"
}

# The first value of a key in a result file, which has one key a line.
value() { sed -n "s/^ *\"$2\": *\"\{0,1\}\(.*[^,\"]\)\"\{0,1\},\{0,1\}$/\1/p" "$results/$1.json" 2>/dev/null | head -n 1; }
# Title of the finding with this id.
title() { grep -A 3 "\"id\": \"$2\"" "$results/$1.json" 2>/dev/null | sed -n 's/^ *"title": *"\(.*\)",\{0,1\}$/\1/p' | head -n 1; }

# Runs `kvwire pair` for an item. Sets `code`.
pair() { # ITEM ARGS...
    local item=$1
    shift
    # What an earlier run left is no result of this one.
    rm -f "$results/$item.json" "$results/$item.out" "$results/$item.err"
    [ "$(left)" -gt 5 ] || [ "$item_limit" -lt 5 ] || { code=out-of-time; return; }
    within "$item_limit" "$kvwire" pair --output "$results/$item.json" --verbose "$@" \
        >"$results/$item.out" 2>"$results/$item.err"
    code=$?
}

# Why an item could not be tried, where the machine cannot; empty where it should have worked.
impossible() { # ITEM
    local why
    why=$(title "$1" gpu-missing)
    [ -z "$why" ] || { echo "$why"; return; }
    why=$(title "$1" gpu-unusable)
    case $why in
    *"no fabric handles"* | *"no virtual memory"* | *NOT_SUPPORTED* | *NOT_PERMITTED*) echo "$why" ;;
    esac
}

# Judges an item that must move every byte, whatever carried it.
moved() { # ITEM
    local why
    case $code in
    0) say pass "$1" "$(sed -n '1s/^[A-Z]*  *//p' "$results/$1.out")" ;;
    out-of-time) say fail "$1" "no time was left for it" ;;
    124 | 137) say fail "$1" "it was ended because it took too long; the last line of its log: $(tail -n 1 "$results/$1.err" | cut -c 1-200)" ;;
    *)
        why=$(impossible "$1")
        if [ -n "$why" ]; then say "not possible" "$1" "$why"; else
            say fail "$1" "exit code $code: $(sed -n '1s/^[A-Z ]*  *//p' "$results/$1.out")$(tail -n 1 "$results/$1.err" | cut -c 1-200)"
        fi
        ;;
    esac
}

quick="--case-time 300ms --expect any"

rm -rf "$results/nixl-cu12" "$results/nixl-cu13" "$results/nvidia-smi-hangs"
within 10 "$kvwire" --version >"$results/version.out" 2>&1 || { say fail kvwire "the binary does not start: $(tail -n 1 "$results/version.out")"; exit 1; }
nixl=$(choose_nixl) || { say fail nixl "the archive could not be unpacked: $(tail -n 1 "$results/unpack.out")"; exit 1; }
export KVWIRE_NIXL_LIB=$nixl

if within 20 "$kvwire" info >"$results/info.out" 2>"$results/info.err"; then
    say pass info "$(sed -n 's/^NIXL  */NIXL /p' "$results/info.out"), $(sed -n 's/^GPU  *//p' "$results/info.out" | head -n 1)"
else
    say fail info "$(cat "$results/info.out" "$results/info.err" | tail -n 1)"
fi
gpus=$(grep -c '^GPU  *GPU [0-9]' "$results/info.out")

within 20 "$kvwire" check node --json >"$results/node.json" 2>"$results/node.err"
code=$?
case $code in
0 | 1 | 3)
    counted=$(sed -n 's/^ *"\(ok\|warn\|fail\)": *\([0-9]*\),\{0,1\}$/\2 \1/p' "$results/node.json" | head -n 3)
    say pass node-check "answered: ${counted//$'\n'/, }"
    ;;
*) say fail node-check "exit code $code: $(tail -n 1 "$results/node.err")" ;;
esac
smi -q >"$results/nvidia-smi.out"
smi topo -m >"$results/topology.out"
[ ! -e "$results/nvidia-smi-hangs" ] || say fail nvidia-smi "it does not answer: the driver or a GPU hangs; look at the kernel log for NVRM Xid lines"

# shellcheck disable=SC2086 # the list of flags is meant to be split
{
    sizes="--sizes 4KiB,1MiB,$largest"
    pair dram-dram $quick $sizes
    moved dram-dram
    pair vram-vram $quick $sizes --memory vram
    moved vram-vram
    pair vram-dram $quick $sizes --initiator-memory vram --target-memory dram
    moved vram-dram
    pair dram-vram $quick $sizes --initiator-memory dram --target-memory vram
    moved dram-vram
}

# The engine has held the kernels against the processor before it used them.
if [ "$(value vram-vram without_kernels)" = null ]; then
    say pass kernel-verification "kernels fill, poison and compare as the processor does"
elif why=$(impossible vram-vram) && [ -n "$why" ]; then
    say "not possible" kernel-verification "$why"
else
    why=$(value vram-vram without_kernels)
    say fail kernel-verification "${why:-vram-vram gave no result}"
fi

for alloc in malloc vmm fabric; do
    # shellcheck disable=SC2086
    pair "alloc-$alloc" $quick --sizes 16MiB --memory vram --alloc "$alloc"
    moved "alloc-$alloc"
    [ "$code" != 0 ] || printf '%14s%-28s  dma-buf: %s; other processes: %s\n' "" "alloc-$alloc" \
        "$(value "alloc-$alloc" dma_buf)" "$(value "alloc-$alloc" process_export)" | tee -a "$results/summary.txt"
done

# shellcheck disable=SC2086
pair kv-blocks $quick --memory vram --model llama-3.1-8b --tokens 1k --layout vllm
moved kv-blocks

pair transport-proof --case-time 300ms --sizes "$largest" --memory vram
if [ "$code" = 0 ]; then
    say pass transport-proof "carried by $(value transport-proof class), as this machine allows"
else
    moved transport-proof
fi

if [ "$gpus" -ge 2 ]; then
    pair two-gpus --case-time 300ms --sizes "1MiB,$largest" --memory vram --gpu 0,1
    moved two-gpus
else
    say "not possible" two-gpus "there are $gpus GPUs here"
fi

# Copies between host and GPU, as the engine measured them when it took its memory, beside the GPU's PCIe link.
tenths() { local tenths=$((${1} / 100000000)); echo "$((tenths / 10)).$((tenths % 10)) GB/s"; }
from_host=$(value vram-vram from_host_bytes_per_s)
to_host=$(value vram-vram to_host_bytes_per_s)
link=$(value vram-vram pcie_bytes_per_s)
if [ "${from_host:-null}" != null ] && [ "${to_host:-null}" != null ]; then
    figures="from host $(tenths "$from_host"), to host $(tenths "$to_host")"
    if [ "${link:-null}" != null ]; then
        figures="$figures: $((from_host * 100 / link)) % and $((to_host * 100 / link)) % of $(tenths "$link") ($(value vram-vram pcie))"
    else
        figures="$figures; what the PCIe link carries is not known"
    fi
    say pass host-gpu-copies "$figures"
elif why=$(impossible vram-vram) && [ -n "$why" ]; then
    say "not possible" host-gpu-copies "$why"
else
    say fail host-gpu-copies "they were not measured"
fi

# Figures beside what the path could reach.
for item in vram-vram vram-dram dram-vram transport-proof; do
    # A line that was wrapped goes on until its bracket ends.
    sed -n "/% of [0-9.]* GB\/s (/{/)\$/!{N;s/\n */ /};s/^ */  $item: /;p}" "$results/$item.out" 2>/dev/null
done | tee -a "$results/summary.txt"

rm -rf "$results/nixl-cu12" "$results/nixl-cu13" "$results/nvidia-smi-hangs"
say "$([ "$failed" = 0 ] && echo pass || echo fail)" all "$((SECONDS - begin)) s; everything is in $results"
exit "$failed"
