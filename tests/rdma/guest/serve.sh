# On node b: runs the scripts that node a leaves in the shared folder, one after the other. The shared folder is not a network,
# so it works whatever happens to the links.
asked=0
while :; do
    asked=$((asked + 1))
    until [ -e "/out/link/$asked.sh" ]; do
        [ ! -e /out/over ] || break 2
        nap
    done
    # Not in a subshell: what a script starts in the background must live on.
    . "/out/link/$asked.sh" >"/out/link/$asked.out" 2>&1
    echo $? >"/out/link/$asked.code.new"
    mv "/out/link/$asked.code.new" "/out/link/$asked.code"
done
