#!/bin/busybox sh
# Says which version of the app it is and what it was given, and goes on until it is ended.
echo "version=$VERSION greeting=$GREETING site=$SITE"
exec /bin/busybox sleep 1000000
