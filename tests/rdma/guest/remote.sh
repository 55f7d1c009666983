# On node a: how it has node b do something.
mkdir -p /out/link
asked=0

# ask_b SCRIPT: has node b's shell run a script, and does not wait for it.
ask_b() {
    asked=$((asked + 1))
    echo "$1" >"/out/link/$asked.sh.new"
    mv "/out/link/$asked.sh.new" "/out/link/$asked.sh"
}

# on_b SCRIPT: runs a script in node b's shell, prints its output and ends with its exit code.
on_b() {
    local code
    ask_b "$1"
    await 70 [ -e "/out/link/$asked.code" ] || return 1
    read -r code <"/out/link/$asked.code"
    cat "/out/link/$asked.out"
    return "$code"
}
