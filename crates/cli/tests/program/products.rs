//! Loss curves with products of float32 and of bfloat16, over 500 steps on real rows: `just test-bf16`.

use crate::support::{artifact_of, succeeds};
use worldloom_model::bf16_unit;

const STEPS: [&str; 3] = ["f32", "other-start", "bf16"];

#[test]
fn products_of_bfloat16_move_the_loss_curve_less_than_another_start_does() {
    if std::env::var_os("WORLDLOOM_BF16_CURVE").is_none() {
        return println!("skipped: three trainings of 500 steps; `just test-bf16` runs them");
    }
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_string_lossy().into_owned();
    let precision = if bf16_unit().is_some() { "bf16" } else { "bf16_emulated" };
    let set = format!("bf16.matmul_precision={precision}");
    succeeds(&["run", "pipelines/matmul-precision.toml", "--runs", &runs, "--set", &set]);
    // Losses of the held-out rows, by step.
    let [exact, other, rounded] = STEPS.map(|step| {
        let metrics = artifact_of(folder.path(), "matmul-precision", step).join("metrics.jsonl");
        let text = fs_err::read_to_string(metrics).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter_map(|line| line["validation"]["loss"].as_f64()).collect::<Vec<f64>>()
    });
    println!(
        "products of {precision} ({})\n| step | float32 | another start | bfloat16 |",
        bf16_unit().unwrap_or("no unit")
    );
    for (at, ((exact, other), rounded)) in exact.iter().zip(&other).zip(&rounded).enumerate() {
        println!("| {} | {exact:.4} | {other:.4} | {rounded:.4} |", 50 * (at + 1));
    }
    let mean_gap = |losses: &[f64]| {
        let gaps: Vec<f64> = losses.iter().zip(&exact).map(|(loss, exact)| (loss - exact).abs()).collect();
        gaps.iter().sum::<f64>() / gaps.len() as f64
    };
    let (of_rounding, of_start) = (mean_gap(&rounded), mean_gap(&other));
    println!("mean gap to float32: {of_rounding:.4} by rounding, {of_start:.4} by another start");
    assert_eq!((exact.len(), rounded.len()), (10, 10));
    assert!(of_rounding > 0.0 && of_rounding < of_start, "{of_rounding} by rounding, {of_start} by another start");
    let [exact, rounded] = [exact, rounded].map(|losses| losses[9]);
    assert!((rounded / exact - 1.0).abs() < 0.01, "the last loss: {rounded}, float32 {exact}");
}
