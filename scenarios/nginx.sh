#!/bin/sh
# Serves /8M (8 MB) and /1M by nginx on port 80 of the host where it runs, until it is killed;
# /address is the asker's address.
# Hosts that run it serve the same bytes with the same validator, as the nodes of a CDN do.
# Usage in a scenario: serve = ['sh "${SCENARIO_DIR:-scenarios}/nginx.sh" NAME']
set -eu
folder="${LAB_DIR:?set by manyways lab}/nginx-${1:?name of the host}"
mkdir -p "$folder/www"
for size in 8 1; do
    yes 'manyways serves this line again and again' | head -c "${size}000000" > "$folder/www/${size}M"
done
# nginx makes the ETag from size and time.
touch -d @1700000000 "$folder/www/8M" "$folder/www/1M"
cat > "$folder/nginx.conf" <<END
# The lab may run in a user namespace that knows no other user.
user root;
worker_processes 1;
pid nginx.pid;
error_log error.log;
events {}
http {
    access_log off;
    sendfile on;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {
        listen 80;
        listen [::]:80;
        root www;
        location = /address {
            return 200 "\$remote_addr\n";
        }
    }
}
END
exec nginx -p "$folder" -c "$folder/nginx.conf" -g 'daemon off;'
