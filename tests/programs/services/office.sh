# LibreOffice, which writes the text of a document to its output. The first argument is a directory with a profile and
# the document. A run has a copy of the profile there, which the next one removes: nothing of it outlives the program.
. "$(dirname "$0")/hold.sh"
rm -rf "$here" "$1"/run.*
here=$1/run.$$
mkdir "$here"
cp -r "$1/profile" "$here/profile"
held
export HOME="$here"
exec /usr/lib/libreoffice/program/soffice.bin --headless "-env:UserInstallation=file://$here/profile" --cat "$1/document.html"
