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
# Exit code: 0 when nothing failed, else 1. A NIXL of your own: KVWIRE_NIXL_LIB=/path/libnixl_capi.so
set -u
bundle=$(cd "$(dirname "$0")" && pwd)
kvwire=${KVWIRE:-$bundle/kvwire}
results=${1:-kvwire-gpu-results}
mkdir -p "$results" || exit 2
results=$(cd "$results" && pwd)
: >"$results/summary.txt"
begin=$SECONDS
limit=235       # of the whole script, in seconds
item_limit=40   # of one item
failed=0

say() { # WORD ITEM TEXT
    printf '%-12s  %-28s  %s\n' "$1" "$2" "$3" | tee -a "$results/summary.txt"
    [ "$1" != fail ] || failed=1
}

# NIXL for the CUDA that the driver supports: 13 needs a driver that says so, 12 runs on both.
choose_nixl() {
    local cuda flavour
    [ -z "${KVWIRE_NIXL_LIB:-}" ] || { echo "$KVWIRE_NIXL_LIB"; return; }
    cuda=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' | head -n 1)
    flavour=cu12
    [ "${cuda:-0}" -lt 13 ] || flavour=cu13
    [ -d "$results/nixl-$flavour" ] || tar -xzf "$bundle/nixl-$flavour.tar.gz" -C "$results" || return 1
    echo "$results/nixl-$flavour/.nixl_$flavour.mesonpy.libs/libnixl_capi.so"
}

# The first value of a key in a result file, which has one key a line.
value() { sed -n "s/^ *\"$2\": *\"\{0,1\}\(.*[^,\"]\)\"\{0,1\},\{0,1\}$/\1/p" "$results/$1.json" 2>/dev/null | head -n 1; }
# Title of the finding with this id.
title() { grep -A 3 "\"id\": \"$2\"" "$results/$1.json" 2>/dev/null | sed -n 's/^ *"title": *"\(.*\)",\{0,1\}$/\1/p' | head -n 1; }

# Runs `kvwire pair` for an item. Sets `code`.
pair() { # ITEM ARGS...
    local item=$1 left
    shift
    left=$((limit - (SECONDS - begin)))
    [ "$left" -gt 5 ] || { code=out-of-time; return; }
    [ "$left" -lt "$item_limit" ] || left=$item_limit
    timeout "$left" "$kvwire" pair --output "$results/$item.json" --verbose "$@" \
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
    *)
        why=$(impossible "$1")
        if [ -n "$why" ]; then say "not possible" "$1" "$why"; else
            say fail "$1" "exit code $code: $(sed -n '1s/^[A-Z ]*  *//p' "$results/$1.out")$(tail -n 1 "$results/$1.err" | cut -c 1-200)"
        fi
        ;;
    esac
}

quick="--case-time 300ms --expect any"

timeout 30 "$kvwire" --version >"$results/version.out" 2>&1 || { say fail kvwire "the binary does not start: $(tail -n 1 "$results/version.out")"; exit 1; }
nixl=$(choose_nixl) || { say fail nixl "the archive could not be unpacked into $results"; exit 1; }
export KVWIRE_NIXL_LIB=$nixl

if timeout 40 "$kvwire" info >"$results/info.out" 2>&1; then
    say pass info "$(grep -m 1 "^GPU" "$results/info.out" | sed "s,^GPU *,,")"
else
    say fail info "$(tail -n 1 "$results/info.out")"
fi

timeout 40 "$kvwire" check node --json >"$results/node.json" 2>"$results/node.err"
case $? in
0 | 1 | 3) say pass node-check "$(nvidia-smi -L 2>/dev/null | head -n 1 | grep . || echo 'answered; nvidia-smi shows no GPU')" ;;
*) say fail node-check "$(tail -n 1 "$results/node.err")" ;;
esac
nvidia-smi -q >"$results/nvidia-smi.out" 2>&1
nvidia-smi topo -m >"$results/topology.out" 2>&1

# shellcheck disable=SC2086 # the list of flags is meant to be split
{
    sizes="--sizes 4KiB,1MiB,64MiB"
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
    say fail kernel-verification "$(value vram-vram without_kernels)"
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

pair transport-proof --case-time 300ms --sizes 64MiB --memory vram
case $code in
0) say pass transport-proof "carried by $(value transport-proof class), as the GPUs allow" ;;
*)
    why=$(impossible transport-proof)
    if [ -n "$why" ]; then say "not possible" transport-proof "$why"; else
        say fail transport-proof "exit code $code: $(sed -n '1s/^[A-Z ]*  *//p' "$results/transport-proof.out")"
    fi
    ;;
esac

gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ "$gpus" -ge 2 ]; then
    pair two-gpus --case-time 300ms --sizes 1MiB,64MiB --memory vram --gpu 0,1
    moved two-gpus
else
    say "not possible" two-gpus "nvidia-smi shows $gpus GPU here"
fi

# Figures beside what the path could reach.
for item in vram-vram vram-dram dram-vram transport-proof; do
    grep -hE '% of [0-9.]+ GB/s' "$results/$item.out" 2>/dev/null | sed "s/^ */  $item: /"
done | tee -a "$results/summary.txt"

rm -rf "$results/nixl-cu12" "$results/nixl-cu13"
say "$([ "$failed" = 0 ] && echo pass || echo fail)" all "$((SECONDS - begin)) s; everything is in $results"
exit "$failed"
