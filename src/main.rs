fn main() {
    println!("barnabas {}", env!("CARGO_PKG_VERSION"));
}
