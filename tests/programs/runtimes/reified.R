# R: errors and returns by longjmp, promises, a collector that does not move, C and Fortran below.
hold <- Sys.getenv('HOLD'); while (nzchar(hold) && !file.exists(hold)) {}
deep <- function(n) if (n == 0) stop('told') else 1 + deep(n - 1)
caught <- 0
for (n in 0:2999) caught <- caught + nchar(tryCatch(deep(n %% 40), error = function(e) conditionMessage(e)))
cat(caught, '\n')
set.seed(7)
m <- matrix(((1:40000) * 7919) %% 1009, 200)
cat(sum(round(svd(m)$d[1:3])), round(sum(m %*% m)), '\n')
for (i in 1:20) { live <- lapply(1:5000, function(i) c(i, i)); invisible(gc()) }
cat(sum(vapply(live, sum, 0)), '\n')
cat(callCC(function(k) { for (i in 1:10) if (i == 7) k(i); 0 }), '\n')
words <- sprintf('%d-%s', (1:20000 * 7919) %% 10007, 'x')
cat(length(unique(words)), sort(words, method = 'radix')[1], '\n')
fit <- lm(dist ~ speed, cars); cat(format(coef(fit), digits = 6), '\n')
invisible(withCallingHandlers(warning('w'), warning = function(w) { cat('warned\n'); invokeRestart('muffleWarning') }))
quit(status = 4)
