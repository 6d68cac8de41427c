//! A small disk of its own for a broker: it can be filled, and made to stand still.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// An ext4 file system in a file, mounted. Dropping it lets it go on and unmounts it.
pub struct Volume {
    folder: TempDir,
}

const BALLAST: &str = "ballast";

impl Volume {
    /// `None` where this machine lets nobody mount one.
    pub fn mount(mebibytes: u64) -> Option<Volume> {
        let volume = Volume { folder: tempfile::tempdir().expect("create a folder") };
        let image = volume.folder.path().join("image");
        let file = File::create(&image).expect("create the file of a volume");
        file.set_len(mebibytes << 20).expect("size the file of a volume");
        std::fs::create_dir(volume.path()).expect("create the folder of a volume");
        let is_made = run("mkfs.ext4", &[&"-q", &"-F", &"-m", &"0", &image]);
        (is_made && run("mount", &[&"-o", &"loop", &image, &volume.path()])).then_some(volume)
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("mounted")
    }

    /// Takes all room but this much.
    #[track_caller]
    pub fn fill_but(&self, left_bytes: u64) {
        let mut options = File::options();
        let file = options.create(true).append(true).open(self.path().join(BALLAST));
        let mut file = file.expect("open a file that takes the room");
        let chunk = vec![1; 64 * 1024];
        // Beyond the end of the room the file system says so.
        while self.free_bytes() > left_bytes && file.write_all(&chunk).is_ok() {}
        file.sync_all().expect("take the room");
    }

    /// Gives the room back.
    #[track_caller]
    pub fn empty(&self) {
        std::fs::remove_file(self.path().join(BALLAST)).expect("give the room back");
    }

    /// Whoever writes waits from now on, as on a disk that does not answer.
    #[track_caller]
    pub fn freeze(&self) {
        assert!(run("fsfreeze", &[&"-f", &self.path()]), "fsfreeze -f");
    }

    #[track_caller]
    pub fn thaw(&self) {
        assert!(run("fsfreeze", &[&"-u", &self.path()]), "fsfreeze -u");
    }

    fn free_bytes(&self) -> u64 {
        rustix::fs::statvfs(self.path()).map_or(0, |space| space.f_bavail * space.f_frsize)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Refused where it does not stand still.
        run("fsfreeze", &[&"-u", &self.path()]);
        run("umount", &[&"-l", &self.path()]);
    }
}

fn run(program: &str, arguments: &[&dyn AsRef<Path>]) -> bool {
    let arguments = arguments.iter().map(|argument| argument.as_ref().as_os_str());
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}
