-- GHC: stacks of its own, tables before the code that they return to, code that jumps and never calls.
module Main where
import Control.Concurrent
import Control.Concurrent.MVar
import Control.Exception
import Control.Monad
import qualified Data.Map.Strict as Map
import Data.List (foldl', sort)
import Data.IORef
import System.Environment
import System.Directory (doesFileExist)
import System.Mem
import Foreign
import Foreign.C.Types

foreign import ccall "stdlib.h qsort" c_qsort :: Ptr CInt -> CSize -> CSize -> FunPtr (Ptr CInt -> Ptr CInt -> IO CInt) -> IO ()
foreign import ccall "wrapper" mkCompare :: (Ptr CInt -> Ptr CInt -> IO CInt) -> IO (FunPtr (Ptr CInt -> Ptr CInt -> IO CInt))

hold :: IO ()
hold = lookupEnv "HOLD" >>= maybe (return ()) wait
  where wait file = do { there <- doesFileExist file; unless there (wait file) }

data Tree = Leaf | Node Tree Int Tree
grow :: Int -> Tree
grow 0 = Leaf
grow n = Node (grow (n - 1)) n (grow (n - 1))
total :: Tree -> Int
total Leaf = 0
total (Node l v r) = total l + v + total r

deep :: Int -> IO Int -> IO Int
deep 0 f = f
deep n f = (+ 1) <$> deep (n - 1) f

main :: IO ()
main = do
  hold
  forM_ [1 .. 10 :: Int] $ \_ -> print (total (grow 15)) >> performGC
  print . sum =<< forM [1 .. 3000] (\n -> deep (n `mod` 50) (throwIO (userError "told")) `catch` \e -> return (length (show (e :: IOException)) + n))
  boxes <- forM [1 .. 20 :: Int] $ \n -> do
    box <- newEmptyMVar
    _ <- forkIO (putMVar box $! foldl' (\s i -> (s + i * n) `mod` 1000003) 0 [1 .. 20000])
    return box
  print . sum =<< mapM takeMVar boxes
  let counts = foldl' (\m i -> Map.insertWith (+) (show (i `mod` 997)) i m) Map.empty [1 .. 50000 :: Int]
  print (Map.foldl' (\s v -> (s + v) `mod` 1000003) 0 counts)
  compareInts <- mkCompare (\a b -> do { x <- peek a; y <- peek b; return (fromIntegral (fromEnum (compare x y) - 1)) })
  sorted <- withArrayLen [fromIntegral ((i * 7919) `mod` 10007) | i <- [1 .. 5000 :: Int]] $ \n p -> do
    c_qsort p (fromIntegral n) 4 compareInts
    peekArray n p
  print (sorted == sort sorted, sum sorted)
  thread <- newEmptyMVar
  victim <- forkIO ((threadDelay 10000000) `catch` \e -> putMVar thread (show (e :: AsyncException)))
  threadDelay 1000 >> killThread victim
  putStrLn =<< takeMVar thread
